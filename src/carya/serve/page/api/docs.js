// Render openapi.json with a form for trying out each operation, in plain JavaScript without dependencies. All URLs are
// relative to this page, so that the page works behind a path prefix.
"use strict";

function createElement(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const schemaName = (reference) => reference.split("/").pop();

function typeName(schema) {
  if (!schema) return "any";
  if (schema.$ref) return schemaName(schema.$ref);
  if (schema.anyOf) return schema.anyOf.map(typeName).join(" or ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  const limits = [];
  for (const [key, sign, unit] of [["minimum", "≥", ""], ["maximum", "≤", ""], ["maxLength", "≤", " characters"], ["minItems", "≥", " items"], ["maxItems", "≤", " items"]])
    if (schema[key] !== undefined) limits.push(`${sign} ${schema[key]}${unit}`);
  const name = schema.type === "array" ? `list of ${typeName(schema.items)}` : schema.type || "any";
  return name + (limits.length ? ` (${limits.join(", ")})` : "");
}

function createFieldList(schema) {
  const list = createElement("dl");
  for (const [name, field] of Object.entries(schema.properties || {})) {
    const required = (schema.required || []).includes(name) ? ", required" : "";
    const description = [field, ...(field.anyOf || [])].map((option) => option.description).find(Boolean) || "";
    list.append(createElement("dt", {}, createElement("code", {}, name), `: ${typeName(field)}${required}`), createElement("dd", {}, description));
  }
  return list;
}

const EXAMPLES = {
  SuggestRequest: { text: "a fast web server", top_k: 5 },
  ExplainRequest: { text: "a fast web server" },
  ExploreTextRequest: { text: "a fast web server" },
  ExploreLabelRequest: { text: "a fast web server", label: "" },
  AnnifBatch: { documents: [{ text: "a fast web server" }] },
  AnnifForm: { text: "a fast web server", limit: 5 },
};

function createForm(path, method, operation) {
  const form = createElement("form");
  const fields = (operation.parameters || []).map((parameter) => {
    const input = createElement("input", { name: parameter.name });
    if (parameter.required) input.required = true;
    form.append(createElement("p", {}, createElement("label", {}, createElement("code", {}, parameter.name), " ", input, ` ${parameter.description || ""}`)));
    return [parameter, input];
  });
  let body = null, mediaType = null;
  if (operation.requestBody) {
    mediaType = Object.keys(operation.requestBody.content)[0];
    const reference = operation.requestBody.content[mediaType].schema.$ref;
    if (!reference) return createElement("p", { class: "note" }, `The body is binary (${mediaType}).`);
    const name = schemaName(reference);
    body = createElement("textarea", { "aria-label": `Body: ${name}` });
    body.value = JSON.stringify(EXAMPLES[name] || {}, null, 1);
    form.append(createElement("p", {}, `Body: ${name} (${mediaType})`), body);
  }
  const output = createElement("pre", { role: "region", tabindex: "0", "aria-label": "Response", "aria-live": "polite" });
  form.append(createElement("button", {}, "Send"), output);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    let url = path.slice(1);
    const query = new URLSearchParams();
    for (const [parameter, input] of fields) {
      if (parameter.in === "path") url = url.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
      else if (input.value) query.set(parameter.name, input.value);
    }
    const headers = {};
    const token = document.getElementById("token").value;
    if (token) headers.Authorization = `Bearer ${token}`;
    let content;
    try {
      if (body) {
        headers["Content-Type"] = mediaType;
        content = mediaType === "application/json" ? body.value : new URLSearchParams(JSON.parse(body.value)).toString();
      }
      const response = await fetch(url + (query.size ? `?${query}` : ""), { method: method.toUpperCase(), headers, body: content });
      let text = await response.text();
      try { text = JSON.stringify(JSON.parse(text), null, 1); } catch { /* not JSON; show it unchanged */ }
      output.textContent = `${response.status} ${response.statusText}\n${text}`;
    } catch (error) {
      output.textContent = String(error);
    }
  });
  return form;
}

function createSection(tag, description) {
  const id = `tag-${tag.toLowerCase().replaceAll(" ", "-")}`;
  return createElement("section", { class: "panel", "aria-labelledby": id },
    createElement("h2", { id }, tag), createElement("p", { class: "note" }, description || ""));
}

async function main() {
  const container = document.getElementById("operations");
  const response = await fetch("openapi.json");
  if (!response.ok) {
    container.textContent = `The OpenAPI document could not be loaded: ${response.status} ${response.statusText}.`;
    return;
  }
  const api = await response.json();
  container.textContent = "";
  container.removeAttribute("role");
  const sections = new Map();
  for (const tag of api.tags) sections.set(tag.name, createSection(tag.name, tag.description));
  container.append(...sections.values());
  for (const [path, methods] of Object.entries(api.paths))
    for (const [method, operation] of Object.entries(methods)) {
      const responses = createElement("dl");
      for (const [status, answer] of Object.entries(operation.responses)) {
        const schema = Object.values(answer.content || {})[0]?.schema;
        responses.append(createElement("dt", {}, `${status} ${answer.description}`), createElement("dd", {}, schema ? typeName(schema) : ""));
      }
      sections.get(operation.tags[0]).append(createElement("details", {},
        createElement("summary", {}, createElement("span", { class: "method" }, method.toUpperCase()), createElement("code", {}, path),
          " ", createElement("span", { class: "summary" }, operation.summary)),
        createForm(path, method, operation), createElement("p", {}, "Responses:"), responses));
    }
  for (const [name, schema] of Object.entries(api.components.schemas))
    document.getElementById("schemas").append(createElement("details", {},
      createElement("summary", {}, createElement("code", {}, name), " ", createElement("span", { class: "summary" }, schema.description || "")),
      createFieldList(schema)));
}

main();
