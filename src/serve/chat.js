// The chat at `/`. A branch is a list of messages. The server finds the state of what was said before by its tokens, so a
// fork or a step back costs nothing to read.
"use strict";
(() => {
  const $ = id => document.getElementById(id);
  const branches = [[]];
  let now = 0, model = "", writing = null;

  const rate = n => `${n < 100 ? n.toFixed(1) : Math.round(n)} tokens/s`;
  const bytes = n => n < 1024 ? `${n} B` : n < 1 << 20 ? `${(n / 1024).toFixed(1)} KiB` : `${(n / (1 << 20)).toFixed(1)} MiB`;

  const made = (name, text, className = "") => {
    const element = document.createElement(name);
    element.textContent = text;
    element.className = className;
    return element;
  };

  // Code between ``` or `, and words between **, as elements; all else as it is.
  function formatted(text) {
    return text.split(/(```[^\n]*\n[^]*?(?:```|$)|`[^`\n]+`|\*\*[^*\n]+\*\*)/).map(part => {
      if (part.startsWith("```")) return made("pre", part.replace(/^```[^\n]*\n/, "").replace(/\n?```$/, ""));
      if (/^`.+`$/.test(part)) return made("code", part.slice(1, -1));
      if (/^\*\*.+\*\*$/.test(part)) return made("b", part.slice(2, -2));
      return part;
    });
  }

  function show() {
    const list = $("messages"), messages = branches[now];
    list.replaceChildren(...messages.map((message, i) => {
      const article = made("article", "", message.role);
      if (message.role === "assistant") article.append(...formatted(message.content));
      else article.textContent = message.content;
      if (writing && i === messages.length - 1) article.classList.add("writing");
      if (message.role !== "user" || writing) return article;
      const edit = made("button", "Edit", "edit");
      edit.title = "return to before this message, and change it";
      edit.addEventListener("click", () => roll_back(i));
      const row = made("div", "", "mine");
      row.append(edit, article);
      return row;
    }));
    list.hidden = messages.length === 0;
    list.classList.toggle("waiting", writing !== null && messages.at(-1)?.role === "user");
    $("welcome").hidden = messages.length > 0 || !model;
    list.scrollTop = list.scrollHeight;
    $("branches").replaceChildren(...(branches.length < 2 ? [] : branches.map((_, i) => {
      const button = document.createElement("button");
      button.textContent = `branch ${i + 1}`;
      button.className = i === now ? "now" : "";
      button.disabled = writing !== null;
      button.addEventListener("click", () => { now = i; show(); });
      return button;
    })));
    $("send").disabled = writing !== null || !model;
    $("stop").disabled = writing === null;
    $("back").disabled = $("fork").disabled = writing !== null || messages.length === 0;
  }

  function headers() {
    const key = $("key").value;
    return {"Content-Type": "application/json", ...(key ? {Authorization: `Bearer ${key}`} : {})};
  }

  // The objects of an event stream.
  async function* events(response) {
    const reader = response.body.getReader(), decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const {done, value} = await reader.read();
      if (done) return;
      rest += decoder.decode(value, {stream: true});
      const lines = rest.split("\n\n");
      rest = lines.pop();
      for (const line of lines)
        if (line.startsWith("data: ") && line !== "data: [DONE]") yield JSON.parse(line.slice(6));
    }
  }

  async function failed(response) {
    if (response.status === 401) $("keyline").hidden = false;
    try {
      return (await response.json()).error.message;
    } catch {
      return `the server answered ${response.status}`;
    }
  }

  async function answer(messages) {
    const said = messages.filter(message => message.role !== "error");
    const reply = {role: "assistant", content: ""};
    const start = performance.now();
    let first = 0, tokens = 0;
    const heat = $("temperature").valueAsNumber;
    const response = await fetch("/v1/chat/completions", {
      method: "POST", headers: headers(), signal: writing.signal,
      body: JSON.stringify({model, messages: said, stream: true, stream_options: {include_usage: true},
                            ...(Number.isFinite(heat) ? {temperature: heat} : {})})});
    if (!response.ok) throw new Error(await failed(response));
    messages.push(reply);
    show();
    for await (const event of events(response)) {
      if (event.error) throw new Error(event.error.message);
      const text = event.choices.length ? event.choices[0].delta.content ?? "" : "";
      if (text) {
        first ||= performance.now();
        ++tokens;
        reply.content += text;
        const list = $("messages"), follows = list.scrollHeight - list.scrollTop - list.clientHeight < 60;
        list.lastChild.replaceChildren(...formatted(reply.content));
        if (follows) list.scrollTop = list.scrollHeight;
        if (tokens > 1) $("numbers").textContent = rate((tokens - 1) * 1000 / (performance.now() - first));
      }
      if (event.usage) {
        const usage = event.usage, seconds = (performance.now() - (first || start)) / 1000;
        const speed = usage.completion_tokens > 1 && seconds > 0 ? (usage.completion_tokens - 1) / seconds : 0;
        $("numbers").textContent = `state ${bytes(event.horner.state_bytes)} · ${rate(speed)} · ` +
          `${usage.prompt_tokens_details.cached_tokens} of ${usage.prompt_tokens} tokens known`;
      }
    }
  }

  async function send() {
    const text = $("text").value, messages = branches[now];
    if (!text.trim() || writing || !model) return;
    $("text").value = "";
    messages.push({role: "user", content: text});
    writing = new AbortController();
    show();
    try {
      await answer(messages);
    } catch (error) {
      if (error.name !== "AbortError") messages.push({role: "error", content: error.message});
    }
    writing = null;
    show();
    $("text").focus();
  }

  // To before message `to`, which may be changed and sent again.
  function roll_back(to) {
    const messages = branches[now];
    if (to < 0) return;
    $("text").value = messages[to].content;
    messages.length = to;
    show();
    $("text").focus();
  }

  function fork() {
    branches.push(branches[now].map(message => ({...message})));
    now = branches.length - 1;
    show();
  }

  async function load() {
    try {
      const response = await fetch("/v1/models", {headers: headers()});
      if (!response.ok) throw new Error(await failed(response));
      const [found] = (await response.json()).data;
      model = found.id;
      $("model").textContent = model;
      $("numbers").textContent = found.chat ? found.computed_by : "this model has no chat template";
      show();
    } catch (error) {
      $("numbers").textContent = error.message;
      if ($("keyline").hidden) setTimeout(load, 1000);
    }
  }

  $("ask").addEventListener("submit", event => { event.preventDefault(); send(); });
  $("text").addEventListener("keydown", event => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  });
  $("stop").addEventListener("click", () => writing?.abort());
  $("back").addEventListener("click", () => roll_back(branches[now].findLastIndex(message => message.role === "user")));
  for (const example of $("examples").children) {
    example.addEventListener("click", () => {
      $("text").value = example.textContent;
      send();
    });
  }
  $("fork").addEventListener("click", fork);
  $("key").addEventListener("change", load);
  show();
  load();
})();
