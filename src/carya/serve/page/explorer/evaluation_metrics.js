// Metrics of ranked labels, updated block by block so that files of any size can be evaluated.

export const CUTOFFS = [1, 3, 5, 10];
export const LABEL_CUTOFF = 5; // the metrics of individual labels count the first suggestions of each text

const BINS = 10;
const MAX_WORST_TEXTS = 10;
const MAX_EXAMPLES = 3; // texts per label
const GROUPS = [[1, 9], [10, 99], [100, 999], [1000, Infinity]]; // numbers of training texts

const createSums = () => Object.fromEntries(CUTOFFS.map((k) => [k, 0]));

/** The results of one model for a file. */
export class Evaluation {
  constructor() {
    this.nTexts = 0;
    this.nLabeled = 0;
    this.precision = createSums();
    this.recall = createSums();
    this.ndcg = createSums();
    this.labels = new Map(); // by label id
    this.bins = Array.from({ length: BINS }, () => ({ count: 0, correct: 0, probability: 0 }));
    this.pairs = new Map(); // of a missed label and an incorrect suggestion
    this.worst = [];
    this.unknown = { support: 0, labels: new Set() };
    this.rankings = []; // the suggestions for all texts, for the download
  }

  /** Add the response for a block of rows. */
  add(rows, response) {
    const labels = response.labels.map(({ label, path }) => this.findLabel(label, path));
    response.texts.forEach((result, position) => {
      const row = rows[position];
      const suggested = result.suggested.map((number) => labels[number]);
      this.nTexts += 1;
      this.rankings.push({ id: row.id, suggestions: suggested.map((label, rank) => ({ label: label.id, name: label.name, score: result.scores[rank], probability: result.probabilities[rank] ?? null })) });
      if (row.labels?.length) this.addLabeled(row, suggested, result, result.relevant.map((number) => labels[number]));
    });
  }

  findLabel({ label: id, name, count }, path) {
    let label = this.labels.get(id);
    if (!label) this.labels.set(id, label = { id, name, count, path, support: 0, suggested: 0, correct: 0, examples: [], others: new Map() });
    return label;
  }

  addLabeled(row, suggested, { probabilities, unknown }, relevant) {
    const isRelevant = new Set(relevant);
    const total = relevant.length + unknown.length;
    const hits = suggested.map((label) => isRelevant.has(label));
    this.nLabeled += 1;
    for (const k of CUTOFFS) {
      const correct = hits.slice(0, k).filter(Boolean).length;
      this.precision[k] += correct / k;
      this.recall[k] += correct / total;
      this.ndcg[k] += computeNdcg(hits, total, k);
    }
    const top = suggested.slice(0, LABEL_CUTOFF);
    for (const label of top) {
      label.suggested += 1;
      if (isRelevant.has(label)) label.correct += 1;
    }
    for (const label of relevant) {
      label.support += 1;
      if (label.examples.length < MAX_EXAMPLES) label.examples.push(row.text);
      for (const other of relevant) if (other !== label) label.others.set(other.id, (label.others.get(other.id) ?? 0) + 1);
    }
    this.unknown.support += unknown.length;
    for (const name of unknown) this.unknown.labels.add(name);
    probabilities.forEach((probability, rank) => {
      const bin = this.bins[Math.min(BINS - 1, Math.floor(BINS * probability))];
      bin.count += 1;
      bin.probability += probability;
      bin.correct += hits[rank] ? 1 : 0;
    });
    const missed = relevant.filter((label) => !top.includes(label));
    for (const expected of missed) {
      for (const label of top) {
        if (isRelevant.has(label)) continue;
        const key = JSON.stringify([expected.id, label.id]);
        const pair = this.pairs.get(key) ?? { expected, suggested: label, count: 0 };
        pair.count += 1;
        this.pairs.set(key, pair);
      }
    }
    const ndcg = computeNdcg(hits, total, LABEL_CUTOFF);
    this.worst.push({ row, ndcg, suggested: top, expected: [...relevant.map((label) => label.name), ...unknown], hits });
    if (this.worst.length > 20 * MAX_WORST_TEXTS) this.worst = this.worstTexts();
  }

  /** Return the texts with the lowest nDCG, worst first; of equal ones, those that come first in the file. */
  worstTexts() {
    return this.worst.filter((text) => text.ndcg < 1).sort((a, b) => a.ndcg - b.ndcg).slice(0, MAX_WORST_TEXTS);
  }

  /** Return the mean of a metric by cutoff: precision, recall or ndcg. */
  mean(metric) {
    return Object.fromEntries(CUTOFFS.map((k) => [k, this[metric][k] / Math.max(1, this.nLabeled)]));
  }

  /** Return the labels that occur in the file or are suggested for it. */
  evaluatedLabels() {
    return [...this.labels.values()].filter((label) => label.support || label.suggested);
  }

  /** Return precision and recall by number of training texts; an empty list if the numbers are unknown. */
  groups() {
    const labels = this.evaluatedLabels();
    if (labels.some((label) => label.count === null)) return [];
    const groups = GROUPS.map(([low, high]) => {
      const members = labels.filter((label) => label.count >= low && label.count <= high);
      return { name: high === Infinity ? `${low} or more` : `${low}–${high}`, ...combine(members), n_labels: members.length };
    });
    const zero = labels.filter((label) => label.count === 0);
    if (zero.length) groups.unshift({ name: "None", ...combine(zero), n_labels: zero.length });
    if (this.unknown.support) groups.unshift({ name: "Label not in the model", support: this.unknown.support, suggested: 0, correct: 0, n_labels: this.unknown.labels.size });
    return groups.filter((group) => group.n_labels);
  }

  /** Return the most frequent pairs of a missed label and an incorrect suggestion for the same text. */
  confusions(limit) {
    return [...this.pairs.values()].sort((a, b) => b.count - a.count).slice(0, limit);
  }

  /** Return the nonempty bins of the calibration plot. */
  calibration() {
    return this.bins.filter((bin) => bin.count).map((bin) => ({ count: bin.count, probability: bin.probability / bin.count, correct: bin.correct / bin.count }));
  }

  /** Return the sums over the labels in a cluster of the tree. */
  cluster(level, node) {
    return combine(this.evaluatedLabels().filter((label) => label.path[level - 1] === node));
  }
}

/** Return the sums of the counts of labels. */
export function combine(labels) {
  const sum = (name) => labels.reduce((total, label) => total + label[name], 0);
  return { support: sum("support"), suggested: sum("suggested"), correct: sum("correct") };
}

function computeNdcg(hits, total, k) {
  const gain = (rank) => 1 / Math.log2(rank + 2);
  let [actual, ideal] = [0, 0];
  for (let rank = 0; rank < k; rank += 1) {
    if (hits[rank]) actual += gain(rank);
    if (rank < total) ideal += gain(rank);
  }
  return ideal ? actual / ideal : 0;
}

/** Return the mean fraction of the best k labels that two models have in common, by cutoff. */
export function overlap(first, second) {
  const sums = createSums();
  const count = Math.min(first.rankings.length, second.rankings.length);
  for (let i = 0; i < count; i += 1) {
    for (const k of CUTOFFS) {
      const best = new Set(first.rankings[i].suggestions.slice(0, k).map((item) => item.label));
      const common = second.rankings[i].suggestions.slice(0, k).filter((item) => best.has(item.label)).length;
      sums[k] += common / k;
    }
  }
  return Object.fromEntries(CUTOFFS.map((k) => [k, sums[k] / Math.max(1, count)]));
}
