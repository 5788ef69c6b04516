/** The choices of the palette for a query. Owner: page console/console. */

export interface Choice {
  readonly text: string
  /** Said beside the text: `page`, or the language of a function. */
  readonly kind: string
  readonly href: string
}

/** Lower is better; null when the letters do not come in this order. */
function rankOf(text: string, letters: string): number | null {
  const at = text.indexOf(letters)
  if (at !== -1) return at === 0 ? 0 : 1
  let from = 0
  for (const letter of letters) {
    from = text.indexOf(letter, from) + 1
    if (from === 0) return null
  }
  return 2
}

/** The best choices for what was typed: those that begin with it, contain it, have its letters in order. */
export function toMatches(choices: readonly Choice[], typed: string, most: number): Choice[] {
  const letters = typed.trim().toLowerCase()
  if (letters === '') return choices.slice(0, most)
  const ranked: [Choice[], Choice[], Choice[]] = [[], [], []]
  for (const choice of choices) {
    const rank = rankOf(choice.text.toLowerCase(), letters)
    if (rank !== null) (ranked[rank] as Choice[]).push(choice)
  }
  return ranked.flat().slice(0, most)
}
