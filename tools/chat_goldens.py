#!/usr/bin/env python3
"""Goldens of chat templates: what jinja2, set as transformers sets it, makes of templates and messages.

    python tools/chat_goldens.py            writes src/model/goldens/chat_templates.json
    python tools/chat_goldens.py --check    compares it with what is computed now
"""
import json
import sys
from pathlib import Path

from jinja2.exceptions import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

PATH = Path(__file__).resolve().parent.parent / "src/model/goldens/chat_templates.json"

# Templates of the shape that the models have, written for this test.
CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA2 = """{%- if messages[0]['role'] == 'system' -%}
    {%- set loop_messages = messages[1:] -%}
    {%- set system_message = '<<SYS>>\\n' ~ messages[0]['content'] | trim ~ '\\n<</SYS>>\\n\\n' -%}
{%- else -%}
    {%- set loop_messages = messages -%}
    {%- set system_message = '' -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{- raise_exception('roles must alternate user/assistant/user/assistant/...') -}}
    {%- endif -%}
    {%- if loop.index0 == 0 -%}{%- set content = system_message + message['content'] -%}
    {%- else -%}{%- set content = message['content'] -%}{%- endif -%}
    {%- if message['role'] == 'user' -%}
        {{- bos_token + '[INST] ' + content.strip() + ' [/INST]' -}}
    {%- elif message['role'] == 'assistant' -%}
        {{- ' ' ~ content.strip() ~ ' ' ~ eos_token -}}
    {%- endif -%}
{%- endfor -%}
"""
LLAMA3 = """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The system message is cut out, so that it can be put in its place. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none %}
    {{- "You have access to the following functions.\\n\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
QWEN = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""
MISTRAL = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}

{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, conversation roles must alternate user/assistant/user/assistant/...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}

{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported, with the exception of an initial optional system message!") }}
    {%- endif %}
{%- endfor %}
"""
# Tool calls of the shape that Hermes and Qwen 2.5 have.
HERMES = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {{- messages[0]['content'] if messages[0]['role'] == 'system' else 'You are a helpful assistant.' }}
    {{- "\\n\\n# Tools\\n\\nCall functions within <tool_call></tool_call> tags:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '\\n</tools>\\n<tool_call>\\n{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
# One construct each: white space, operators, filters, methods, scopes.
SMALL = {
    "trim blocks": "a\n  {% if true %}\n  b\n  {% endif %}\nc\n\n",
    "minus": "a \n {%- if true -%} \n b \n {%- endif -%} \n c {{- 1 -}} \n d",
    "plus": "a\n  {%+ if true +%}\n  b\n{% endif %}\nc",
    "comments": "a {# x #} b\n  {# y #}\nc{#- z -#} d",
    "output keeps lines": "{{ 1 }}\n{{ 2 }}\n  {{ 3 }}\n",
    "carriage returns": "a\r\n{% if true %}\r\nb\r\n{% endif %}\r\n",
    "numbers": "{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 1.5 + 1 }} {{ 4.0 }} {{ 10 - 2 - 3 }}",
    "precedence": "{{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }} {{ not 1 == 2 }} {{ 1 < 2 < 3 }} {{ 1 ~ 2 }} {{ 2 ~ 3 * 4 }} {{ -2 ** 2 }}",
    "logic": "{{ 0 or 'x' }} {{ 1 and '' }}|{{ none or false }} {{ true and not false }}",
    "choice": "{{ 'a' if false else 'b' }}{{ 'c' if false }}|{{ 1 if true else 2 if true else 3 }}",
    "python values": "{{ [1, 'a', none, true, 2.5, \"it's\"] }} {{ {'a': [1], 'b': {}} }} {{ 'x\\ty' }}",
    "in": "{{ 'a' in 'cat' }} {{ 1 in [1] }} {{ 'k' in {'k': 1} }} {{ 2 not in [1] }}",
    "slices": "{{ [1,2,3,4][1:3] }}{{ [1,2,3,4][::-1] }}{{ [1,2,3][-2:] }}{{ 'h\u00e9llo'[1:3] }}{{ 'abc'[-1] }}{{ [1,2,3,4,5][::2] }}{{ [1,2][5:] }}{{ [1,2,3,4][3:0:-2] }}",
    "strings": "{{ ' a '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'a,b,c'.split(',') }}|{{ 'a  b c'.split() }}|{{ 'a,b,c'.split(',', 1) }}|{{ 'abc'.upper() }}|{{ 'hello world'.title() }}|{{ 'aXbX'.replace('X', '-') }}|{{ 'Hello'.lower() }}|{{ 'hELLO'.capitalize() }}|{{ 'abc'.find('c') }}|{{ '-'.join(['a','b']) }}|{{ 'abab'.count('ab') }}",
    "starts": "{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'c')) }}",
    "unicode space": "[{{ '\u00a0\u3000x\u2003 ' | trim }}]",
    "filters": "{{ [3,1] | length }}{{ 'h\u00e9' | length }}{{ x | default('d') }}{{ '' | default('e', true) }}{{ [1,2] | join('-') }}{{ [1,2,3] | first }}{{ [1,2,3] | last }}{{ 'AbC' | lower }}{{ '7' | int + 1 }}{{ ['a','b'] | map('upper') | list }}{{ [1,1,2] | unique | list }}{{ [1,2,3] | reverse | list }}{{ 'h\u00e9!' | reverse }}{{ 'a-b' | replace('-', '+') }}",
    "attributes": "{{ messages | map(attribute='role') | join(',') }}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ messages | rejectattr('role', 'equalto', 'user') | map(attribute='content') | list }}",
    "tojson": "{{ {'a': [1, 2.5, none, true, '\u00e9\\n\"<'], 'b': {}} | tojson }}{{ [1, {'x': 2}] | tojson(indent=2) }}{{ [] | tojson(indent=2) }}",
    "tests": "{{ x is defined }}{{ messages is defined }}{{ none is none }}{{ 'a' is string }}{{ {} is mapping }}{{ [] is iterable }}{{ 'a' is sequence }}{{ 3 is number }}{{ 3 is odd }}{{ 4 is divisibleby 2 }}{{ true is boolean }}{{ 1 is not none }}{{ not x is defined }}{{ 'a' is eq 'a' }}{{ 'a' is in ['a'] }}",
    "loop": "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{% endfor %}",
    "loop neighbours": "{% for m in [1,2,3] %}{{ loop.previtem }}<{{ m }}>{{ loop.nextitem }};{% endfor %}",
    "loop else": "{% for m in [] %}x{% else %}none{% endfor %}{% for m in [1,2,3,4] if m is even %}{{ m }}{{ loop.index }}{% endfor %}",
    "loop control": "{% for m in [1,2,3,4] %}{% if m == 2 %}{% continue %}{% endif %}{% if m == 4 %}{% break %}{% endif %}{{ m }}{% endfor %}",
    "scopes": "{% set x = 1 %}{% for m in [1,2] %}{% set x = x + m %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{ x }}",
    "namespace": "{% set ns = namespace(a=1) %}{% for m in [1,2] %}{% set ns.a = ns.a + m %}{% endfor %}{{ ns.a }}",
    "unpacking": "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}{% set a, b = 1, 2 %}{{ b }}{{ {'a': 1}.get('z', 5) }}{% for k in {'p': 1} %}{{ k }}{% endfor %}{% for k, v in {'q': 3} | items %}{{ k }}{{ v }}{% endfor %}",
    "capture": "{% set x %}a{{ 1 }}b{% endset %}[{{ x }}]{{ x | length }}",
    "macro": "{% macro f(a, b='z') %}<{{ a }}{{ b }}>{% endmacro %}{{ f(1) }}{{ f('x', b='y') }}{{ f(1) | length }}",
    "range": "{{ range(3) | list }}{% for i in range(1, 7, 2) %}{{ i }}{% endfor %}{{ range(3, 0, -1) | list }}",
    "escapes": "{{ 'a\\n\\tb\\\\c\\'d\\x41\\u00e9' }}{{ \"q\\\"\" }}{{ 'a' 'b' }}",
    "braces": "{{ {'a': {'b': 1}}['a']['b'] }}{{ {'x': 1} }}",
    "undefined": "[{{ x }}][{{ messages[0].nothing }}][{{ messages[9] }}]",
    "errors: attribute of nothing": "{{ x.y }}",
    "errors: filter": "{{ 1 | frobnicate }}",
    "errors: statement": "{% include 'x' %}",
    "errors: raise": "a{{ raise_exception('no') }}",
    "errors: sum": "{{ 'a' + 1 }}",
    "errors: endless": "{% for a in range(99999) %}{% for b in range(99999) %}{{ b }}{% endfor %}{% endfor %}",
    "errors: open tag": "{% if true",
    "errors: open block": "{% if true %}x",
    "errors: stray end": "a{% endfor %}",
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a place",
            "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
        },
    }
]
CHATS = {
    "one": [{"role": "user", "content": "Hi"}],
    "turns": [
        {"role": "system", "content": " Be short.\n"},
        {"role": "user", "content": "  What is 1 + 1?  "},
        {"role": "assistant", "content": " It is 2.\n"},
        {"role": "user", "content": "Na\u00efve \u4f60\u597d \U0001f600 <|im_end|>"},
    ],
    "thinking": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nb"},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "<think>\nwell\n</think>\n\nd"},
    ],
    "tool calls": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "call_0", "type": "function",
             "function": {"name": "weather", "arguments": {"place": "Troms\u00f8", "days": [1, 2.5, None]}}},
            {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": {}}}]},
        {"role": "tool", "tool_call_id": "call_0", "content": "{\"C\": -4}"},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
        {"role": "assistant", "content": "Cold."},
        {"role": "user", "content": "Thanks </tool_call>"},
    ],
    "wrong": [{"role": "assistant", "content": "I begin"}, {"role": "tool", "content": "x"}],
}


def environment():
    def raise_exception(message):
        raise TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    return made


def render(source, messages, more):
    if source == SMALL["errors: endless"]:
        return None  # jinja2 would run for hours
    try:
        return environment().from_string(source).render(
            messages=messages, bos_token="<s>", eos_token="</s>", **more
        )
    except Exception:  # of any kind: ours must refuse as well
        return None


def goldens():
    templates = {"chatml": CHATML, "llama2": LLAMA2, "llama3": LLAMA3, "qwen": QWEN, "mistral": MISTRAL,
                 "hermes": HERMES}
    kinds = {
        "": {"add_generation_prompt": True},
        ", no prompt": {"add_generation_prompt": False},
        ", tools": {"add_generation_prompt": True, "tools": TOOLS},
        ", no thinking": {"add_generation_prompt": True, "enable_thinking": False},
    }
    cases = [(f"{family}: {chat}{kind}", family, chat, kind) for family in templates for chat in CHATS for kind in kinds]
    cases += [(name, name, "turns", "") for name in SMALL]
    templates |= SMALL
    texts = [
        {"name": name, "template": template, "chat": chat, "kind": kind,
         "text": render(templates[template], CHATS[chat], kinds[kind])}
        for name, template, chat, kind in cases
    ]
    return {"templates": templates, "chats": CHATS, "kinds": kinds, "cases": texts}


def main():
    text = json.dumps(goldens(), ensure_ascii=False, indent=1) + "\n"
    if "--check" in sys.argv[1:]:
        if PATH.read_text(encoding="utf-8") != text:
            sys.exit(f"{PATH.name} is not what jinja2 makes")
        print(f"{PATH.name}: as jinja2 makes it")
        return
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
