"use strict";
// What every part of the page uses: the token, requests, elements and texts.
const element = id => document.getElementById(id);
let token = "";
try { token = sessionStorage.getItem("token") || ""; } catch { /* a browser without storage asks again */ }

function keepToken(value) {
  token = value;
  try { sessionStorage.setItem("token", value); } catch { /* as above */ }
}

const hashParameters = () => new URLSearchParams(location.hash.slice(1));
const fromAddress = hashParameters();
if (fromAddress.has("token")) {  // the address must not keep it: links are shared
  keepToken(fromAddress.get("token"));
  fromAddress.delete("token");
  history.replaceState(null, "", location.pathname + (fromAddress.size ? "#" + fromAddress : ""));
}

class Refused extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

// Sends a request with the token. Throws Refused with the server's message for an error. Answers that are read again and
// again may be two seconds old, so that the server makes them once for all open pages.
async function send(path, method = "GET") {
  const headers = token ? { Authorization: "Bearer " + token } : {};
  if (method === "GET") headers["Cache-Control"] = "max-age=2";
  const answer = await fetch(path, { method, headers, cache: "no-store" });
  if (answer.ok) return answer;
  let message = "the server answered with " + answer.status;
  try { message = (await answer.json()).error.message; } catch { /* not an answer of ours */ }
  throw new Refused(answer.status, message);
}

const load = async path => (await send(path)).json();

function make(tag, text, kind) {
  const node = document.createElement(tag);
  if (text !== undefined && text !== null) node.textContent = String(text);
  if (kind) node.className = kind;
  return node;
}

function link(text, hash) {
  const node = make("a", text);
  node.href = hash;
  return node;
}

// columns: [name, classes]; rows: arrays of texts, numbers or nodes. Texts never become HTML. A column with "optional"
// among its classes is left out where no row has anything in it.
function fillTable(table, columns, rows, whenEmpty) {
  const head = make("tr"), body = make("tbody"), thead = make("thead");
  columns = columns.map(([name, classes], index) => {
    const isLeftOut = (classes || "").includes("optional") && rows.every(cells => cells[index] === "");
    return [name, isLeftOut ? "empty-column" : classes];
  });
  columns.forEach(([name, classes]) => head.append(make("th", name, classes)));
  thead.append(head);
  rows.forEach(cells => {
    const row = make("tr");
    cells.forEach((cell, index) => {
      const node = make("td", cell instanceof Node ? null : cell, columns[index][1]);
      if (cell instanceof Node) node.append(cell);
      row.append(node);
    });
    body.append(row);
  });
  if (!rows.length && whenEmpty) {
    const row = make("tr"), cell = make("td", whenEmpty, "quiet");
    cell.colSpan = columns.length;
    row.append(cell);
    body.append(row);
  }
  table.replaceChildren(thead, body);
}

const isMissing = value => value === null || value === undefined;
const rounded = (value, digits = 1) => isMissing(value) ? "" : Number(value).toFixed(digits);
const percent = value => (100 * value).toFixed(value && value < 0.1 ? 1 : 0) + " %";
const clock = seconds => isMissing(seconds) ? "" : new Date(seconds * 1000).toLocaleString(
  undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });

function duration(seconds) {
  if (isMissing(seconds)) return "";
  if (seconds < 1) return Math.round(seconds * 1000) + " ms";
  if (seconds < 90) return seconds.toFixed(seconds < 10 ? 1 : 0) + " s";
  if (seconds < 5400) return Math.round(seconds / 60) + " min";
  if (seconds < 129600) return (seconds / 3600).toFixed(1) + " h";
  return (seconds / 86400).toFixed(1) + " days";
}

// What became of a verdict, in one short text with a colour.
function outcome(status) {
  if (status.state === "finished" && status.score) {
    if (status.score.correct) return make("span", "correct", "good");
    return make("span", status.score.fault || "wrong", "bad");
  }
  if (status.state === "failed") return make("span", status.error ? "failed: " + status.error.code : "failed", "warm");
  if (status.state === "queued") return make("span", isMissing(status.position) ? "queued" : "queued, position " + status.position, "quiet");
  return make("span", status.state === "running" ? status.doing || "running" : status.state, "quiet");
}
