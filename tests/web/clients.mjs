// Drives the endpoints of server.py with the real clients of AG-UI and of the Vercel AI SDK.
import { HttpAgent } from "@ag-ui/client";
import { DefaultChatTransport, readUIMessageStream } from "ai";

const base = process.argv[2];
const KINDS = ["plain", "tools", "deploy yes", "deploy no", "bad", "fail", "slow"];
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const fault = (why, seen) => {
  throw new Error(`${why}: ${JSON.stringify(seen)}`);
};

// Resolves when a slow tool runs, so that the client hangs up in the middle of the run.
const untilRunning = async () => {
  while (!(await (await fetch(`${base}/running`)).json()).running) await pause(10);
};

const agUi = async (kind, number) => {
  const agent = new HttpAgent({ url: `${base}/ag-ui`, threadId: `a${number}` });
  agent.messages = [{ id: `u${number}`, role: "user", content: kind }];
  let finished = null;
  let error = null;
  const seen = {
    onRunFinishedEvent: ({ event }) => { finished = event; },
    onRunErrorEvent: ({ event }) => { error = event; },
    onRunFailed: ({ error: raised }) => { error ??= raised; },
  };
  if (kind === "slow") {
    const run = agent.runAgent({}, seen).catch((raised) => raised);
    await untilRunning();
    agent.abortRun();
    await run;
    return;
  }
  try {
    await agent.runAgent({}, seen);
  } catch (raised) {
    if (kind !== "fail") throw raised;
  }
  if (kind === "fail") return error ? undefined : fault("no error", finished);
  if (kind.startsWith("deploy")) {
    const [interrupt] = finished?.outcome?.interrupts ?? fault("no interrupt", finished);
    const payload = { approved: kind.endsWith("yes") };
    finished = null;
    await agent.runAgent(
      { resume: [{ interruptId: interrupt.id, status: "resolved", payload }] },
      seen,
    );
  }
  if (error || finished?.outcome?.type !== "success") fault(kind, { finished, error: `${error}` });
};

const vercel = async (kind, number) => {
  const transport = new DefaultChatTransport({ api: `${base}/vercel` });
  const first = [{ id: `u${number}`, role: "user", parts: [{ type: "text", text: kind }] }];
  let error = null;
  const run = async (messages, abortSignal) => {
    const stream = await transport.sendMessages({
      chatId: `v${number}`, messages, trigger: "submit-message", abortSignal,
    });
    const last = messages.at(-1);
    const message = last.role === "assistant" ? structuredClone(last) : undefined;
    const onError = (raised) => { error = raised; };
    let reply;
    for await (const each of readUIMessageStream({ message, stream, onError })) reply = each;
    return reply;
  };
  if (kind === "slow") {
    const abort = new AbortController();
    const slow = run(first, abort.signal).catch((raised) => raised);
    await untilRunning();
    abort.abort();
    await slow;
    return;
  }
  let reply = await run(first);
  if (kind === "fail") return error ? undefined : fault("no error", reply);
  if (kind.startsWith("deploy")) {
    const asked = reply.parts.find((part) => part.state === "approval-requested");
    if (!asked) fault("no approval", reply.parts);
    asked.state = "approval-responded";
    asked.approval = { ...asked.approval, approved: kind.endsWith("yes"), reason: "not today" };
    reply = await run([...first, reply]);
  }
  const outputs = reply.parts.filter((part) => part.state === "output-available");
  if (kind === "tools" && outputs.length !== 2) fault("two results expected", reply.parts);
  if (error || !reply.parts.some((part) => part.text)) fault(kind, { error: `${error}`, reply });
};

const report = {};
for (const [name, act] of [["ag_ui", agUi], ["vercel", vercel]]) {
  report[name] = { good: 0, faults: [] };
  for (let number = 0; number < 100; number++) {
    try {
      await act(KINDS[number % KINDS.length], number);
      report[name].good++;
    } catch (raised) {
      report[name].faults.push(String(raised).slice(0, 400));
    }
  }
}
for (let left = 100; left && (await (await fetch(`${base}/running`)).json()).running; left--) {
  await pause(50);
}
report.left = (await (await fetch(`${base}/running`)).json()).running;
console.log(JSON.stringify(report));
process.exit(0);
