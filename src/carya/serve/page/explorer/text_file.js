// Read files of texts, with or without labels: JSON lines, CSV and TSV with a header, or one text per line.

/** An error in a file, which is shown to the user. */
export class FileError extends Error {}

const DELIMITERS = [",", ";", "\t", "|"];

/** Return the texts in a file as objects with `id`, `text` and `labels`, which is undefined if the file has none. */
export function parseTexts(name, content) {
  const text = content.replace(/^\uFEFF/, "");
  const rows = /\.(jsonl|ndjson)$/i.test(name) || /^\s*\{/.test(text) ? parseJsonLines(text) : parseTable(text) ?? parseLines(text);
  if (!rows.length) throw new FileError("The file contains no texts.");
  return rows;
}

function parseLines(content) {
  return content.split(/\r?\n/).flatMap((line, position) => (line.trim() ? [{ id: position + 1, text: line }] : []));
}

function parseJsonLines(content) {
  return content.split(/\r?\n/).flatMap((line, position) => {
    if (!line.trim()) return [];
    const place = `Line ${position + 1}`;
    let value;
    try {
      value = JSON.parse(line);
    } catch {
      throw new FileError(`${place} is not valid JSON. Each line must be an object such as {"text": "…", "labels": ["…"]}.`);
    }
    if (typeof value?.text !== "string") throw new FileError(`${place} has no string with the key "text".`);
    const { labels } = value;
    if (labels !== undefined && !(Array.isArray(labels) && labels.every((label) => typeof label === "string" || Number.isInteger(label)))) {
      throw new FileError(`${place}: "labels" must be a list of strings.`);
    }
    return [{ id: value.id ?? position + 1, text: value.text, labels: labels?.map(String) }];
  });
}

/** Parse a table; return undefined if the first line is not a header with the column "text". */
function parseTable(content) {
  const header = content.split(/\r?\n/, 1)[0];
  const delimiter = DELIMITERS.find((candidate) => header.split(candidate).map((cell) => cell.trim().replace(/^"|"$/g, "")).includes("text"));
  if (delimiter === undefined) return undefined;
  const [names, ...records] = parseCsv(content, delimiter);
  const [textColumn, labelColumn, idColumn] = ["text", "labels", "id"].map((name) => names.findIndex((cell) => cell.trim() === name));
  return records.flatMap((cells, position) => {
    if (cells.length === 1 && !cells[0].trim()) return [];
    if (cells.length !== names.length) throw new FileError(`Row ${position + 1} has ${cells.length} cells, but the header has ${names.length}.`);
    return [{
      id: idColumn < 0 ? position + 1 : cells[idColumn],
      text: cells[textColumn],
      labels: labelColumn < 0 ? undefined : parseLabels(cells[labelColumn]),
    }];
  });
}

/** Split a cell into labels, which are separated by semicolons or written as a JSON list. */
function parseLabels(cell) {
  if (cell.trim().startsWith("[")) {
    try {
      return JSON.parse(cell).map(String);
    } catch { /* not a JSON list, so the bracket is part of a label */ }
  }
  return cell.split(";").map((label) => label.trim()).filter(Boolean);
}

/** Return the records of a CSV file (RFC 4180). */
function parseCsv(content, delimiter) {
  const records = [[]];
  let position = 0;
  while (position < content.length) {
    let cell = "";
    if (content[position] === '"') {
      position += 1;
      for (;;) {
        const end = content.indexOf('"', position);
        if (end < 0) throw new FileError(`Row ${records.length - 1} has a quotation mark without a matching one.`);
        cell += content.slice(position, end);
        position = end + 1;
        if (content[position] !== '"') break;
        cell += '"';
        position += 1;
      }
    }
    const begin = position;
    while (position < content.length && content[position] !== delimiter && content[position] !== "\n") position += 1;
    records.at(-1).push(cell + content.slice(begin, position).replace(/\r$/, ""));
    if (content[position] === "\n" && position + 1 < content.length) records.push([]);
    else if (content[position] === delimiter && position + 1 === content.length) records.at(-1).push("");
    position += 1;
  }
  return records;
}
