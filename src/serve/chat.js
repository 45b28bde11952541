// The chat at `/`. A branch is a list of messages. The server finds the state of what was said before by its tokens, so a
// fork or a step back costs nothing to read.
"use strict";
(() => {
  const $ = id => document.getElementById(id);
  const branches = [[]];
  let now = 0, model = "", writing = null;

  const bytes = n => n < 1024 ? `${n} B` : n < 1 << 20 ? `${(n / 1024).toFixed(1)} KiB` : `${(n / (1 << 20)).toFixed(1)} MiB`;

  function show() {
    const list = $("messages"), messages = branches[now];
    list.replaceChildren(...messages.map(message => {
      const article = document.createElement("article");
      article.className = message.role;
      article.textContent = message.content;
      return article;
    }));
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
    const response = await fetch("/v1/chat/completions", {
      method: "POST", headers: headers(), signal: writing.signal,
      body: JSON.stringify({model, messages: said, stream: true, stream_options: {include_usage: true}})});
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
        $("messages").lastChild.textContent = reply.content;
        $("messages").scrollTop = $("messages").scrollHeight;
        if (tokens > 1) $("numbers").textContent = `${((tokens - 1) * 1000 / (performance.now() - first)).toFixed(1)} tokens/s`;
      }
      if (event.usage) {
        const usage = event.usage, seconds = (performance.now() - (first || start)) / 1000;
        const speed = usage.completion_tokens > 1 && seconds > 0 ? (usage.completion_tokens - 1) / seconds : 0;
        $("numbers").textContent = `state ${bytes(event.horner.state_bytes)} · ${speed.toFixed(1)} tokens/s · ` +
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

  function roll_back() {
    const messages = branches[now];
    let last = messages.length;
    while (last > 0 && messages[last - 1].role !== "user") --last;
    if (last === 0) return;
    $("text").value = messages[last - 1].content;
    messages.length = last - 1;
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
  $("back").addEventListener("click", roll_back);
  $("fork").addEventListener("click", fork);
  $("key").addEventListener("change", load);
  show();
  load();
})();
