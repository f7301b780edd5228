// One verdict: outcome, attempts, the candidate with the marked line, the report, and what may be done with it.
let shownVerdict = null;

const speedupText = score => isMissing(score.speedup) ? "" :
  `${rounded(score.speedup, 2)}x over eager` + (isMissing(score.speedup_low) ? "" : ` (at least ${rounded(score.speedup_low, 2)}x)`);

async function showVerdict(id) {
  const isNew = shownVerdict !== id;
  if (isNew) clearVerdict(id);
  const status = await load("v1/verdicts/" + id);
  if (id !== hashParameters().get("verdict")) return;
  const score = status.score, isOpen = status.state === "queued" || status.state === "running";
  element("verdict-title").textContent = status.problem;
  element("verdict-outcome").replaceChildren(outcome(status), " " + explanationOf(status));
  element("cancel").hidden = !isOpen;
  element("again").hidden = isOpen;
  fillTable(element("attempts"), [["attempt", "number"], ["judge"], ["began", "time wide"], ["took", "number"], ["outcome"], ["message", "long optional"]],
    status.attempts.map(one => [one.number, one.judge, clock(one.started),
      one.ended ? duration(one.ended - one.started) : "", one.outcome, one.message]), "None yet.");
  element("report").textContent = status.report ? JSON.stringify(status.report, null, 2) : "None yet.";
  const texts = shownTexts || (shownTexts = await load("v1/verdicts/" + id + "/source"));
  showFacts(status, score, texts);
  showCode(element("candidate"), texts.candidate, status.report && status.report.failure);
  if (isNew) showCode(element("reference"), texts.problem, null);
  const trace = status.report && status.report.failure && status.report.failure.trace;
  element("trace-section").hidden = !trace;
  element("trace").textContent = trace || "";
}

let shownTexts = null;

function clearVerdict(id) {
  shownVerdict = id;
  shownTexts = null;
  for (const name of ["verdict-title", "verdict-outcome", "facts", "attempts", "candidate", "reference", "report", "action-note"])
    element(name).replaceChildren();
}

function explanationOf(status) {
  if (status.error) return status.error.message;
  if (status.score) return status.score.correct ? speedupText(status.score)
    : status.score.explanation.replace(/^ended at \w+: (\w+: )?/, "");  // the outcome and the facts say it
  return status.state === "queued" && status.eta_seconds ? "expected in " + duration(status.eta_seconds) : "";
}

function showFacts(status, score, texts) {
  const rows = [
    ["Submitted", clock(status.submitted) + (texts.clients.length ? " by " + texts.clients.join(", ") : "")],
    ["Group", texts.groups.join(", ")],
    ["Took", status.ended && status.started ? duration(status.ended - status.started) + " after " + duration(status.started - status.submitted) + " of waiting" : ""],
    ["Judged on", status.report ? status.report.judged_on || status.device : status.device],
    ["Reached", score ? score.ended_at : ""],
    ["Checks", score && score.checks_made ? score.checks_passed + " of " + score.checks_made + " passed" : ""],
    ["Speedup", score ? speedupText(score) : ""],
    ["Over torch.compile", score && score.compile_speedup ? rounded(score.compile_speedup, 2) + "x" : ""],
    ["Speed of light", score && score.speed_of_light ? percent(score.speed_of_light) : ""],
    ["Work in its own kernels", score && !isMissing(score.share) ? percent(score.share) : ""],
    ["Verdict", status.verdict_id],
  ];
  fillTable(element("facts"), [["", "quiet"], ["", "long"]], rows.filter(([, value]) => value !== ""));
}

// The text with line numbers; the line that a failure names is marked, with its message below.
function showCode(box, text, failure) {
  const marked = failure && failure.where ? failure.where.line : null;
  const lines = text.replace(/\n$/, "").split("\n").map((line, index) => {
    const row = make("div", null, index + 1 === marked ? "marked" : "");
    row.append(make("i", index + 1), make("span", line));
    if (index + 1 !== marked) return [row];
    return [row, make("div", failure.message, "note")];
  });
  box.replaceChildren(...lines.flat());
}

async function act(path, method, done) {
  try {
    const status = await (await send(path, method)).json();
    element("action-note").textContent = done(status);
    await showVerdict(status.verdict_id);
  } catch (error) {
    element("action-note").textContent = error.message;
  }
}

element("cancel").onclick = () => act("v1/verdicts/" + shownVerdict, "DELETE", status =>
  status.state === "cancelled" ? "Cancelled." : status.state === "running" ? "It stops at its next step." : "Another client still waits for it.");
element("again").onclick = () => act("v1/verdicts/" + shownVerdict + "/again", "POST", () => "It is judged again.");
element("copy-link").onclick = async () => {
  try {
    await navigator.clipboard.writeText(location.href);
    element("action-note").textContent = "The link is copied.";
  } catch {  // browsers give the clipboard to pages of https and of this machine only
    element("action-note").textContent = location.href;
  }
};
