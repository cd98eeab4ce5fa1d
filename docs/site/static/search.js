// The search of the site. Any word of a sentence counts, rare words more, words of headings most (BM25).
// `search-index.js` has the pages: [name, title, [[anchor, title, text], ...]].
const Search = {
  K: 3,
  B: 0.4,
  HEADING: 8, // a word of a heading counts as much as so many of the text
  LESS: 0.5, // how much pages count that list, record or show what others explain
  LISTS: /^((examples|reference)\/|(messages|index|how-to|guides|concepts|project|get-started|changelog|upgrading|contributing|releasing|tested|decisions|architecture|public|operations|performance|warehouse|errors|code-of-conduct|commands|security)$)/,

  words(text) {
    const stemmer = (this.stemmer ??= new Stemmer());
    const stems = (this.stems ??= new Map());
    return (text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) ?? [])
      .flatMap((word) => (word.includes("_") ? [word, ...word.split("_")] : [word]))
      .filter((word) => word && !stopwords.has(word))
      .map((word) => stems.get(word) ?? (stems.set(word, stemmer.stemWord(word)), stems.get(word)));
  },

  load(pages) {
    const parts = [];
    this.pages = pages.map(([name, title, keywords, found], page) => {
      for (const [anchor, heading, text] of found) parts.push({ page, anchor, heading, text });
      const text = found.map(([, heading, text]) => `${heading} ${text}`).join(" ");
      return { name, title, first: { page, anchor: "", heading: "", text }, heading: `${title} ${keywords}`, text, weight: this.LISTS.test(name) ? this.LESS : 1 };
    });
    this.whole = this.indexed(this.pages);
    this.sections = this.indexed(parts.filter(({ heading }) => heading));
    this.messages = this.indexed(parts.filter(({ heading }) => !heading)); // each is a row of the page of all messages
  },

  indexed(all) {
    const postings = new Map();
    const lengths = all.map((each, number) => {
      const [heading, text] = [this.words(each.heading), this.words(each.text)];
      const counts = new Map();
      for (const word of heading) counts.set(word, (counts.get(word) ?? 0) + this.HEADING);
      for (const word of text) counts.set(word, (counts.get(word) ?? 0) + 1);
      for (const [word, count] of counts) (postings.get(word) ?? postings.set(word, []).get(word)).push([number, count]);
      return heading.length * this.HEADING + text.length;
    });
    const mean = lengths.reduce((sum, length) => sum + length, 0) / lengths.length;
    return { all, postings, lengths, mean };
  },

  rarity({ all, postings }, word) {
    const found = postings.get(word)?.length ?? 0;
    return Math.log(1 + (all.length - found + 0.5) / (found + 0.5));
  },

  scores(index, words) {
    const scores = new Float64Array(index.all.length);
    for (const word of words) {
      const rarity = this.rarity(index, word);
      for (const [number, count] of index.postings.get(word) ?? []) {
        const length = this.K * (1 - this.B + (this.B * index.lengths[number]) / index.mean);
        scores[number] += (rarity * count * (this.K + 1)) / (count + length);
      }
    }
    return scores;
  },

  // The pages, best first, each with the section that suits best.
  ranked(query) {
    const words = [...new Set(this.words(query))];
    const best = this.pages.map((page) => ({ score: 0, section: page.first }));
    const keep = (section, score) => {
      if (score > best[section.page].score) best[section.page] = { score, section };
    };
    this.scores(this.sections, words).forEach((score, number) => keep(this.sections.all[number], score));
    this.scores(this.whole, words).forEach((score, page) => {
      best[page].score = (best[page].score + score) * this.pages[page].weight;
    });
    // A message that was pasted has nearly all words of one that is known, and the values that it was raised with.
    for (const message of this.messages.all) {
      const known = new Set(this.words(message.text));
      const common = words.filter((word) => known.has(word));
      const rarity = (all) => all.reduce((sum, word) => sum + this.rarity(this.messages, word), 0);
      const share = rarity(common) / rarity([...known]);
      if (share > 0.85 && common.length > words.length / 3) keep(message, 1000 * share * rarity(common));
    }
    return best
      .map((found, page) => ({ ...this.pages[page], ...found }))
      .filter(({ score }) => score)
      .sort((a, b) => b.score - a.score);
  },
};

Search.show = (query) => {
  const summary = document.querySelector("#search-results .search-summary");
  const found = Search.ranked(query).slice(0, 30);
  summary.textContent = found.length ? `found ${found.length} pages, best first` : "did not match any page";
  document.querySelector("#search-results ul").replaceChildren(
    ...found.map(({ name, title, section }) => {
      const item = document.createElement("li");
      const link = item.appendChild(document.createElement("a"));
      link.href = `${document.documentElement.dataset.content_root}${name}.html#${section.anchor}`;
      link.textContent = [title, section.heading].filter((each, number) => each && (!number || each !== title)).join(": ");
      item.appendChild(document.createElement("p")).textContent = Search.excerpt(section.text, query);
      return item;
    }),
  );
};

// The part of a text with the most words of the query.
Search.excerpt = (text, query, size = 220) => {
  const words = new Set(Search.words(query));
  const tokens = text.split(/\s+/);
  const hits = tokens.map((token) => Number(Search.words(token).some((word) => words.has(word))));
  let [start, most] = [0, -1];
  for (let number = 0, sum = 0; number < tokens.length; number++) {
    sum += hits[number] - (hits[number - 30] ?? 0);
    if (sum > most) [start, most] = [Math.max(0, number - 29), sum];
  }
  const part = tokens.slice(start, start + 60).join(" ");
  return `${start ? "… " : ""}${part.length > size ? `${part.slice(0, part.lastIndexOf(" ", size))} …` : part}`;
};

Search.start = () => {
  const query = new URLSearchParams(location.search).get("q") ?? "";
  for (const field of document.querySelectorAll('input[name="q"]')) field.value = query;
  if (query) Search.show(query);
};
