"use strict";
(() => {
  const get = (id) => document.getElementById(id);
  const live = get("live");
  const main = document.querySelector("main");
  const field = get("prompt");
  const token = new URLSearchParams(location.search).get("token") ?? "";
  let session = live.dataset.session;
  let stream = null; // the article of the reply that is written now

  const call = (path, body) => fetch(path, {
    method: body ? "POST" : "GET",
    headers: { "x-glue-token": token, ...(body ? { "content-type": "application/json" } : {}) },
    body: body ? JSON.stringify(body) : undefined,
  });

  const tell = (text, bad = false) => {
    get("notice").textContent = text;
    get("notice").classList.toggle("bad", bad);
  };

  const busy = (running) => {
    get("stop").hidden = !running;
    get("send").hidden = running;
    field.disabled = running;
    if (!running) field.focus();
  };

  const atEnd = () => innerHeight + scrollY >= document.body.offsetHeight - 120;
  const follow = (change) => {
    const stays = atEnd();
    change();
    if (stays) scrollTo(0, document.body.scrollHeight);
  };

  const address = () => {
    const query = new URLSearchParams();
    if (token) query.set("token", token);
    if (session) query.set("session", session);
    history.replaceState(null, "", `?${query}`);
  };

  // All HTML comes from the server, which has escaped the texts of models and tools.
  const insert = (id, html) => follow(() => {
    main.querySelector(":scope > .none")?.remove();
    const old = id ? get(id) : null;
    if (old && main.contains(old)) old.outerHTML = html;
    else if (stream) stream.insertAdjacentHTML("beforebegin", html);
    else main.insertAdjacentHTML("beforeend", html);
  });

  const write = (kind, text) => follow(() => {
    if (!stream) {
      main.insertAdjacentHTML(
        "beforeend",
        '<article class="turn" id="stream"><div class="rail"></div><div class="card"></div></article>',
      );
      stream = get("stream");
    }
    const card = stream.querySelector(".card");
    let last = card.lastElementChild;
    if (!last || last.dataset.kind !== kind) {
      last = document.createElement(kind === "thinking" ? "pre" : "p");
      last.className = kind === "thinking" ? "thinking" : "text";
      last.dataset.kind = kind;
      card.append(last);
    }
    last.append(text);
  });

  const show = (message) => {
    if (message.type === "text" || message.type === "thinking") write(message.type, message.text);
    if (message.type === "article") {
      if (message.id.startsWith("r")) {
        stream?.remove();
        stream = null;
      }
      insert(message.id, message.html);
    }
    if (message.type === "question") {
      insert("", message.html);
      main.querySelector(".asks button")?.focus();
    }
    if (message.type === "end") {
      const fine = ["done", "wrapped_up", "paused"].includes(message.outcome);
      tell(fine ? message.notice : `${message.outcome}: ${message.notice}`, !fine);
    }
  };

  const read = async (response) => {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) show(JSON.parse(part.slice("data: ".length)));
    }
  };

  const run = async (path, body) => {
    busy(true);
    tell("");
    try {
      const response = await call(path, body);
      if (response.ok) await read(response);
      else tell((await response.json()).error, true);
    } catch (error) {
      tell(`the connection was lost: ${error.message}`, true);
    }
    stream = null;
    await load();
    busy(false);
    await list();
  };

  const load = async () => {
    const response = await call(`transcript?${new URLSearchParams({ session })}`);
    if (!response.ok) return tell(await response.text(), true);
    const found = await response.json();
    follow(() => {
      main.innerHTML = found.body;
      get("top").innerHTML = found.top;
    });
    if (found.pending) tell(`${found.pending} waiting for an answer`);
    busy(found.running);
  };

  const list = async () => {
    const response = await call(`sessions?${new URLSearchParams({ q: get("find").value })}`);
    if (!response.ok) return;
    get("list").innerHTML = (await response.json()).html;
    for (const each of get("list").querySelectorAll("button")) {
      if (each.dataset.session === session) each.setAttribute("aria-current", "true");
    }
  };

  get("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    const prompt = field.value.trim();
    if (!prompt) return;
    if (!session) session = `web-${crypto.randomUUID()}`;
    address();
    field.value = "";
    run("run", { session, prompt });
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      get("composer").requestSubmit();
    }
  });
  get("stop").addEventListener("click", () => call("stop", { session }));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !get("stop").hidden) call("stop", { session });
  });
  get("new").addEventListener("click", async () => {
    session = "";
    address();
    tell("");
    await load();
    field.focus();
  });
  let waiting = 0;
  get("find").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(list, 150);
  });

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const { session: chosen, question, call: pending, answer } = button.dataset;
    if (chosen) {
      session = chosen;
      address();
      tell("");
      await load();
      await list();
    } else if (question) {
      button.closest("article").remove();
      const response = await call("answer", { question, answer });
      if (!response.ok) tell((await response.json()).error, true);
    } else if (pending) {
      const text = get(`text-${pending}`)?.value ?? "";
      run("decide", { session, call: pending, answer, text });
    }
  });

  if (innerWidth < 720) get("chats").open = false;
  list();
  field.focus();
})();
