// Shows /openapi.json and lets one try it. Plain JavaScript: nothing is loaded from elsewhere.
"use strict";

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const last = (reference) => reference.split("/").pop();

function typeOf(schema) {
  if (!schema) return "anything";
  if (schema.$ref) return last(schema.$ref);
  if (schema.anyOf) return schema.anyOf.map(typeOf).join(" or ");
  if (schema.type === "array") return `list of ${typeOf(schema.items)}`;
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" or ");
  const limits = [];
  for (const [key, sign] of [["minimum", "≥"], ["maximum", "≤"], ["maxLength", "characters ≤"], ["maxItems", "items ≤"]])
    if (schema[key] !== undefined) limits.push(`${sign} ${schema[key]}`);
  return (schema.type || "anything") + (limits.length ? ` (${limits.join(", ")})` : "");
}

function describe(schema) {
  const list = element("dl");
  for (const [name, field] of Object.entries(schema.properties || {})) {
    const needed = (schema.required || []).includes(name) ? ", required" : "";
    const about = [field, ...(field.anyOf || [])].map((one) => one.description).find(Boolean) || "";
    list.append(element("dt", {}, element("code", {}, name), `: ${typeOf(field)}${needed}`), element("dd", {}, about));
  }
  return list;
}

const EXAMPLES = {
  SuggestRequest: { text: "a fast web server", top_k: 5 },
  ExplainRequest: { text: "a fast web server" },
  AnnifBatch: { documents: [{ text: "a fast web server" }] },
  AnnifForm: { text: "a fast web server", limit: 5 },
};

function tryIt(path, method, operation) {
  const form = element("form");
  const fields = (operation.parameters || []).map((parameter) => {
    const input = element("input", { name: parameter.name });
    if (parameter.required) input.required = true;
    form.append(element("p", {}, element("label", {}, `${parameter.name} `, input, ` ${parameter.description || ""}`)));
    return [parameter, input];
  });
  let body = null, kind = null;
  if (operation.requestBody) {
    kind = Object.keys(operation.requestBody.content)[0];
    const name = last(operation.requestBody.content[kind].schema.$ref);
    body = element("textarea", { "aria-label": `Body: ${name}` });
    body.value = JSON.stringify(EXAMPLES[name] || {}, null, 1);
    form.append(element("p", {}, `Body: ${name}, as ${kind}`), body);
  }
  const answer = element("pre", { "aria-live": "polite" });
  form.append(element("button", {}, "Ask"), answer);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    let url = path;
    const query = new URLSearchParams();
    for (const [parameter, input] of fields) {
      if (parameter.in === "path") url = url.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
      else if (input.value) query.set(parameter.name, input.value);
    }
    const headers = {};
    const token = document.getElementById("token").value;
    if (token) headers.Authorization = `Bearer ${token}`;
    let sent;
    try {
      if (body) {
        headers["Content-Type"] = kind;
        sent = kind === "application/json" ? body.value : new URLSearchParams(JSON.parse(body.value)).toString();
      }
      const said = await fetch(url + (query.size ? `?${query}` : ""), { method: method.toUpperCase(), headers, body: sent });
      const text = await said.text();
      let shown = text;
      try { shown = JSON.stringify(JSON.parse(text), null, 1); } catch { /* not JSON: as it is */ }
      answer.textContent = `${said.status} ${said.statusText}\n${shown}`;
    } catch (problem) {
      answer.textContent = String(problem);
    }
  });
  return form;
}

async function main() {
  const api = await (await fetch("/openapi.json")).json();
  const place = document.getElementById("operations");
  place.textContent = "";
  let tag = null;
  for (const [path, methods] of Object.entries(api.paths))
    for (const [method, operation] of Object.entries(methods)) {
      if (operation.tags[0] !== tag) place.append(element("h2", {}, (tag = operation.tags[0])));
      const answers = element("dl");
      for (const [status, one] of Object.entries(operation.responses)) {
        const schema = Object.values(one.content || {})[0]?.schema;
        answers.append(element("dt", {}, `${status} ${one.description}`), element("dd", {}, schema ? typeOf(schema) : ""));
      }
      place.append(element("details", {},
        element("summary", {}, element("span", { class: "method" }, method.toUpperCase()), element("code", {}, path), ` ${operation.summary}`),
        tryIt(path, method, operation), element("p", {}, "Answers:"), answers));
    }
  for (const [name, schema] of Object.entries(api.components.schemas))
    document.getElementById("schemas").append(element("details", {},
      element("summary", {}, element("code", {}, name), ` ${schema.description || ""}`), describe(schema)));
}

main();
