// How the search ranks pages: first what answers a question, last what only lists or records other pages.
var Scorer = {
  score: ([page, , , , score]) =>
    score + (/^(how-to\/|(stop|stages|rate)$)/.test(page) ? 10 : /^(changelog|index|overview|how-to|guides|concepts|project)$/.test(page) ? -10 : 0),
  // The rest as Sphinx has it.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
