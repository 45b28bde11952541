"""The PyPI package `openai` against `horner serve`, unchanged."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from serving import PROGRAM, Server, train

openai = pytest.importorskip("openai")
pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program")
SAID = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    model = train(tmp_path_factory.mktemp("models"), "tiny")
    with Server(model, HORNER_API_KEY="a key") as one:
        yield one


@pytest.fixture(scope="module")
def client(server: Server) -> "openai.OpenAI":
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="a key", max_retries=0)


def test_models(client: "openai.OpenAI") -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]


def test_chat(client: "openai.OpenAI") -> None:
    answer = client.chat.completions.create(
        model="tiny", messages=SAID, max_completion_tokens=8, seed=1, logprobs=True, top_logprobs=3,
        extra_body={"ignore_eos": True})
    (choice,) = answer.choices
    assert choice.finish_reason == "length" and choice.message.role == "assistant"
    tokens = choice.logprobs.content
    assert len(tokens) == answer.usage.completion_tokens == 8
    assert all(len(token.top_logprobs) == 3 and token.logprob <= token.top_logprobs[0].logprob for token in tokens)
    text = b"".join(bytes(token.bytes) for token in tokens).decode(errors="replace")
    assert text == choice.message.content
    again = client.chat.completions.create(model="tiny", messages=SAID, max_completion_tokens=1)
    assert again.usage.prompt_tokens_details.cached_tokens == again.usage.prompt_tokens - 1


def test_stream(client: "openai.OpenAI") -> None:
    wanted = {"model": "tiny", "messages": SAID, "max_tokens": 8, "seed": 1, "extra_body": {"ignore_eos": True}}
    whole = client.chat.completions.create(**wanted).choices[0].message.content
    text, usage = "", None
    for chunk in client.chat.completions.create(**wanted, stream=True, stream_options={"include_usage": True}):
        text += chunk.choices[0].delta.content or "" if chunk.choices else ""
        usage = chunk.usage or usage
    assert text == whole and usage and usage.completion_tokens == 8


def test_completions(client: "openai.OpenAI") -> None:
    answer = client.completions.create(
        model="tiny", prompt=["To be", "or not"], n=2, max_tokens=4, echo=True, logprobs=2)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert [choice.text[:2] for choice in answer.choices] == ["To", "To", "or", "or"]
    assert answer.choices[0].logprobs.token_logprobs[0] is None


def test_errors(server: Server, client: "openai.OpenAI") -> None:
    with pytest.raises(openai.BadRequestError, match="temperature must be"):
        client.completions.create(model="tiny", prompt="a", temperature=-3)
    with pytest.raises(openai.NotFoundError, match="there is no model 'other'"):
        client.completions.create(model="other", prompt="a")
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="no", max_retries=0).models.list()


def test_cancel(server: Server, client: "openai.OpenAI") -> None:
    stream = client.chat.completions.create(
        model="tiny", messages=SAID, max_tokens=100_000, stream=True, extra_body={"ignore_eos": True})
    for count, _ in enumerate(stream):
        if count == 5:
            break
    stream.close()
    idle = "\nhorner_streams 0\n"
    server.wait_until(lambda one: idle in one.ask("GET", "/metrics", Authorization="Bearer a key").decode())
