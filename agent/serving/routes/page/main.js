// What is shown, by the part of the address after the #, and when it is loaded again.
const REFRESH_SECONDS = 3;
let timer = null;

function readFilters() {
  const parameters = hashParameters();
  FILTERS.forEach(name => {
    const field = element("filters").elements[name], value = parameters.get(name) || "";
    if (field.tagName === "SELECT" && value && ![...field.options].some(option => option.value === value)) {
      const option = make("option", value);
      option.value = value;
      field.append(option);
    }
    field.value = value;
  });
}

function writeFilters() {
  const parameters = new URLSearchParams();
  FILTERS.forEach(name => {
    const value = element("filters").elements[name].value.trim();
    if (value) parameters.set(name, value);
  });
  cursors = [null];
  history.replaceState(null, "", location.pathname + (parameters.size ? "#" + parameters : ""));
  refresh();
}

async function showHealth() {
  const answer = await fetch("v1/health", { cache: "no-store" }), health = await answer.json();
  element("health").textContent = health.status.replace("_", " ");
  element("health").className = "badge " + (answer.ok ? "good" : "bad");
  element("version").textContent = "version " + health.version + ", up " + duration(health.uptime_seconds);
}

async function refresh() {
  clearTimeout(timer);
  const verdict = hashParameters().get("verdict");
  try {
    await showHealth();
    if (verdict) await showVerdict(verdict);
    else {
      const verdicts = showVerdicts();
      const everything = Promise.all([verdicts, showService(), showRewards(), showTrajectories()]);
      await Promise.race([verdicts, everything]);  // an error of any part comes with `everything`
      reveal("overview");  // the statistics of a long record take a while
      await everything;
    }
    reveal(verdict ? "verdict" : "overview");
  } catch (error) {
    if (error.status === 401) {
      element("token-refused").textContent = token ? "the server does not know this token" : "";
      reveal("token-form");
      return;
    }
    if (!(error instanceof Refused)) {
      element("health").textContent = "no answer from the server";
      element("health").className = "badge bad";
    }
    element("trouble").textContent = error.message;
    element("trouble").hidden = false;
  }
  timer = setTimeout(refreshIfSeen, REFRESH_SECONDS * 1000);
}

// A page in the background asks for nothing.
function refreshIfSeen() {
  if (document.hidden) timer = setTimeout(refreshIfSeen, REFRESH_SECONDS * 1000);
  else refresh();
}

function reveal(shown) {
  ["overview", "verdict", "token-form"].forEach(name => { element(name).hidden = name !== shown; });
  element("trouble").hidden = true;
  if (shown === "overview" && !element("throughput").dataset.isSized) {  // charts are as wide as their figure is now
    element("throughput").dataset.isSized = "yes";
    refresh();
  }
}

element("token-form").onsubmit = event => { event.preventDefault(); keepToken(element("token").value.trim()); refresh(); };
element("filters").onsubmit = event => { event.preventDefault(); writeFilters(); };
element("filters").onchange = writeFilters;
element("filters").onreset = () => setTimeout(writeFilters);
element("csv").onclick = saveCsv;
element("span").onchange = refresh;
element("preset").onchange = refresh;
element("older").onclick = () => { cursors.push(nextCursor); refresh(); };
element("newer").onclick = () => { cursors.pop(); refresh(); };
onhashchange = () => { readFilters(); cursors = [null]; refresh(); scrollTo(0, 0); };
readFilters();
refresh();
