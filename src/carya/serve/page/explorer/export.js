// Results as JSON, CSV or a list of label ids, for copying and downloading.

export const FILE_NAMES = { json: "labels.json", csv: "labels.csv", uris: "labels.txt" };

/** Return the results in a format: json, csv or uris. */
export function createExport(format, { text, model, rows }) {
  const scored = rows.map((row) => ({ label: row.label, name: row.name, score: row.scores[0]?.score ?? null, probability: row.scores[0]?.probability ?? null }));
  if (format === "uris") return scored.map((row) => `${row.label}\n`).join("");
  if (format === "json") return `${JSON.stringify({ model, text, suggestions: scored }, null, 1)}\n`;
  const lines = scored.map((row) => [row.label, row.name, row.score ?? "", row.probability ?? ""].map(quote).join(","));
  return `label,name,score,probability\n${lines.map((line) => `${line}\n`).join("")}`;
}

/** Quote a value for CSV; values that spreadsheet programs would interpret as formulas are preceded by an apostrophe. */
export function quote(value) {
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Copy text to the clipboard; return whether the browser allowed it. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/** Save text as a file. */
export function downloadText(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
