// The overview: figures, verdicts with filters and pages, the service over time, judges, and reward health.
const PAGE_SIZE = 25;
const FILTERS = ["problem", "state", "fault", "client", "group", "age"];
let cursors = [null];  // `before` of each page up to the one that is shown
let nextCursor = null;

const seconds = value => rounded(value, value < 10 ? 1 : 0) + " s";
const hourAndMinute = moment => new Date(moment * 1000).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" });

function card(title, value, note) {
  const node = make("div", null, "card");
  node.append(make("span", title), make("b", value), make("span", note));
  return node;
}

async function showService() {
  const span = Number(element("span").value);
  const [queue, past, found] = await Promise.all([load("v1/queue"), load("v1/history?seconds=" + span), load("v1/judges")]);
  const spanText = element("span").selectedOptions[0].textContent;
  const ready = found.judges.filter(judge => judge.state === "ready").length;
  const etas = queue.devices.map(device => device.eta_seconds).filter(value => value);
  element("cards").replaceChildren(
    card("Waiting", queue.queued, etas.length ? "empty in " + duration(Math.max(...etas)) : queue.queued ? "" : "nothing waits"),
    card("Running", queue.running, "of " + queue.devices.reduce((sum, device) => sum + device.capacity, 0) + " at once"),
    card("Judges ready", ready + " of " + found.judges.length, found.judges.map(judge => judge.name).slice(0, 4).join(", ")),
    card("Verdicts", past.ended, spanText),
    card("Median latency", isMissing(past.latency_p50) ? "–" : duration(past.latency_p50),
      isMissing(past.latency_p95) ? "" : "95 % within " + duration(past.latency_p95)),
  );
  const labels = past.bins.map(bin => span > 86400 ? clock(bin.start) : hourAndMinute(bin.start));
  element("throughput-note").textContent = "each " + duration(past.seconds_per_bin);
  bars(element("throughput"), past.bins.map((bin, index) => ({ label: labels[index], value: bin.ended })));
  lines(element("latency"), labels, [
    { values: past.bins.map(bin => bin.latency_p50), colour: "var(--accent)" },
    { values: past.bins.map(bin => bin.latency_p95), colour: "var(--warm)" }], seconds);
  bars(element("waiting"), past.bins.map((bin, index) => ({ label: labels[index], value: bin.queued })));
  showJudges(found.judges);
  fillTable(element("queue"), [["device"], ["compiles for", "wide"], ["waiting", "number"], ["running", "number"],
    ["at once", "number"], ["a verdict takes", "number"], ["empty in", "number optional"]],
    queue.devices.map(device => [device.device, device.target, device.queued, device.running, device.capacity,
      duration(device.seconds_per_verdict), device.eta_seconds ? duration(device.eta_seconds) : ""]));
}

function showJudges(judges) {
  const colours = { ready: "good", starting: "warm", dead: "bad" }, now = Date.now() / 1000;
  fillTable(element("judges"), [["judge"], ["state"], ["age", "number"], ["restarts", "number"], ["working on"]],
    judges.map(judge => {
      const work = make("span");
      judge.verdicts.forEach(verdict => {
        const line = make("div"), text = (verdict.doing || "beginning") + ", " + duration(verdict.seconds);
        line.append(verdict.verdict_id ? link(text, "#verdict=" + verdict.verdict_id) : text);
        work.append(line);
      });
      if (!judge.verdicts.length) work.append(make("span", "idle", "quiet"));
      return [judge.name, make("span", judge.state, colours[judge.state]), duration(now - judge.started), judge.restarts, work];
    }), "No judge.");
}

// The filters as parameters of a request.
function filterQuery() {
  const query = new URLSearchParams();
  FILTERS.forEach(name => {
    const value = element("filters").elements[name].value.trim();
    if (value && name === "age") query.set("since", (Date.now() / 1000 - Number(value)).toFixed(0));
    else if (value) query.set(name, value);
  });
  return query;
}

async function showVerdicts() {
  const query = filterQuery(), before = cursors.at(-1);
  const isFiltered = query.size > 0;
  query.set("limit", PAGE_SIZE);
  if (before !== null) query.set("before", before);
  const found = await load("v1/verdicts?" + query);
  nextCursor = found.next;
  fillTable(element("verdicts"), [["submitted", "time wide"], ["problem", "long"], ["outcome"], ["speedup", "number optional"],
    ["client", "wide optional"], ["group", "wide optional"], ["judge", "wide"], ["took", "number"]],
    found.verdicts.map(status => {
      const last = status.attempts.at(-1), end = status.ended || (status.state === "running" ? Date.now() / 1000 : null);
      return [clock(status.submitted), link(status.problem, "#verdict=" + status.verdict_id), outcome(status),
        status.score && status.score.speedup !== null ? rounded(status.score.speedup, 2) + "x" : "",
        status.clients.join(", "), status.groups.join(", "), last ? last.judge : "",
        end && status.started ? duration(end - status.started) : ""];
    }), isFiltered ? "No verdict matches the filters." : "Nothing has been submitted yet.");
  element("newer").disabled = cursors.length < 2;
  element("older").disabled = nextCursor === null;
  element("page-note").textContent = cursors.length > 1 ? "page " + cursors.length : "";
  const names = [...new Set(found.verdicts.map(status => status.problem))];
  if (names.length) element("problem-names").replaceChildren(...names.map(name => { const node = make("option"); node.value = name; return node; }));
}

async function showRewards() {
  const health = await load("v1/rewards?preset=" + element("preset").value);
  element("totals").textContent = health.candidates
    ? `${health.candidates} candidates, ${health.correct} correct (${percent(health.correct / health.candidates)}), `
      + `${health.masked} masked (a fault that a loaded machine may cause).`
    : "Nothing has been judged yet.";
  shares(element("rungs"), health.rungs.map(rung => ({
    label: rung.rung, note: `${rung.ended} (${percent(rung.share)})`,
    parts: [{ value: rung.correct, colour: "var(--good)", title: rung.correct + " correct" },
      { value: rung.ended - rung.correct, colour: "var(--bad)", title: rung.ended - rung.correct + " wrong" }] })), health.candidates);
  const trained = health.rewards.reduce((sum, bin) => sum + bin.count, 0);
  element("rewards-note").textContent = trained ? "of " + trained + " that train" : "nothing trains yet";
  element("rewards").hidden = !trained;
  if (trained) bars(element("rewards"), health.rewards.map(bin => ({
    label: String(bin.low).replace("0.", "."), value: bin.count,
    title: (bin.high === null ? "at least " + bin.low : bin.low + " to " + bin.high) + ": " + bin.count,
    colour: bin.low >= 0.25 ? "var(--good)" : bin.low < 0 ? "var(--bad)" : "var(--warm)" })), { labelled: true });
  const isTimed = health.speedups.some(bin => bin.count);
  element("speedups-note").textContent = isTimed ? "" : "nothing was timed: that needs a GPU";
  element("speedups").hidden = !isTimed;
  if (isTimed) bars(element("speedups"), health.speedups.map(bin => ({
    label: bin.high === null ? "≥" + bin.low : "<" + bin.high, value: bin.count,
    colour: bin.low >= 1 ? "var(--good)" : "var(--bad)" })), { labelled: true });
  bars(element("trend"), health.trend.map(bin => ({
    label: clock(bin.from), value: bin.correct_share, colour: "var(--good)",
    title: clock(bin.from) + ": " + percent(bin.correct_share) + " of " + bin.candidates })), { format: percent, largest: 1 });
  const groups = health.groups;
  element("groups").textContent = groups.groups
    ? `${groups.flat} of ${groups.groups} groups are flat (${groups.flat_wrong} all wrong, ${groups.flat_right} all right): they teach a policy nothing.`
    : health.candidates ? "No groups were named." : "";
  const reward = value => isMissing(value) ? "" : rounded(value, 3);
  fillTable(element("reward-problems"), [["problem", "long"], ["candidates", "number"], ["correct", "number"], ["masked", "number"],
    ["mean reward", "number"]],
    health.problems.map(row => [link(row.problem, "#problem=" + encodeURIComponent(row.problem)), row.candidates,
      row.correct + " (" + percent(row.correct / row.candidates) + ")", row.masked, reward(row.mean_reward)]));
  fillTable(element("reward-groups"), [["group", "long"], ["problem", "wide"], ["client", "wide optional"], ["candidates", "number"],
    ["correct", "number"], ["masked", "number"], ["rewards", "number"]],
    health.newest_groups.map(row => [link(row.group, "#group=" + encodeURIComponent(row.group)), row.problem, row.client,
      row.candidates, row.correct, row.masked,
      isMissing(row.lowest) ? "" : row.lowest === row.highest ? reward(row.lowest) + ", flat" : reward(row.lowest) + " to " + reward(row.highest)]));
  fillTable(element("reasons"), [["reason"], ["rung", "wide"], ["candidates", "number"], ["such as", "long"]],
    health.reasons.map(reason => [link(reason.fault, "#fault=" + reason.fault), reason.rung, reason.count, reason.example]));
  const select = element("filters").elements.fault, value = select.value || hashParameters().get("fault") || "";
  const faults = [...new Set(["", ...health.reasons.map(reason => reason.fault), value])];
  select.replaceChildren(...faults.map(fault => { const node = make("option", fault || "any"); node.value = fault; return node; }));
  select.value = value;
}

async function showTrajectories() {
  const found = (await load("v1/trajectories?limit=50")).trajectories;
  element("trajectory-section").hidden = !found.length;
  fillTable(element("trajectories"), [["number", "number"], ["problem", "long"], ["policy"], ["sample", "number"], ["ended"]],
    found.map(one => {
      const open = make("button", one.problem);
      open.onclick = async () => {
        element("trajectory").srcdoc = await (await send("v1/trajectories/" + one.id)).text();
        element("trajectory").hidden = false;
      };
      return [one.id, open, one.policy, one.sample, one.stop_reason || "not yet"];
    }));
}

async function saveCsv() {
  const file = URL.createObjectURL(await (await send("v1/verdicts.csv?" + filterQuery())).blob());
  const download = link("", file);
  download.download = "verdicts.csv";
  download.click();
  URL.revokeObjectURL(file);
}
