/** A look at source text without a compiler: what is code and what is comment or text. Owner: §2.16, page dependencies/resolve. */

export interface TextRules {
  /** Quotes whose text may span lines and has no escapes. */
  raw: string
  /** Block comments may lie in each other. */
  nested: boolean
  /** `'` begins a character: `'x'`, `'\n'`. In Rust it may begin a lifetime too. */
  lifetimes: boolean
}

export const GO_TEXT: TextRules = { raw: '`', nested: false, lifetimes: false }
export const RUST_TEXT: TextRules = { raw: '', nested: true, lifetimes: true }

/** The text with comments and quoted text blanked out; every line and column stays where it is. */
export function blankOut(text: string, rules: TextRules): string {
  const parts: string[] = []
  let kept = 0
  let at = 0
  const blank = (from: number, to: number) => {
    parts.push(text.slice(kept, from), text.slice(from, to).replace(/[^\n]/g, ' '))
    kept = at = to
  }
  while (at < text.length) {
    const char = text[at] as string
    if (char === '/' && text[at + 1] === '/') blank(at, endOf(text, '\n', at))
    else if (char === '/' && text[at + 1] === '*') blank(at, endOfBlock(text, at, rules.nested))
    else if (char === '"' && rules.lifetimes) blank(...rustText(text, at))
    else if (char === '"') blank(at, endOfQuoted(text, at))
    else if (char === rules.raw) blank(at, endOf(text, char, at + 1) + 1)
    else if (char === "'" && (!rules.lifetimes || /^'(?:\\.|[^\\'])/.test(text.slice(at, at + 3)))) {
      const end = rules.lifetimes && text[at + 1] !== '\\' && text[at + 2] !== "'" ? at + 1 : endOfQuoted(text, at)
      if (end === at + 1) at = end
      else blank(at, end)
    } else at += 1
  }
  parts.push(text.slice(kept))
  return parts.join('')
}

/** 1-based line of a position. */
export function lineOf(text: string, position: number): number {
  let line = 1
  for (let at = text.indexOf('\n'); at !== -1 && at < position; at = text.indexOf('\n', at + 1)) line += 1
  return line
}

function endOf(text: string, mark: string, from: number): number {
  const at = text.indexOf(mark, from)
  return at === -1 ? text.length : at
}

function endOfBlock(text: string, from: number, nested: boolean): number {
  let depth = 0
  for (let at = from; at < text.length; at++) {
    if (text[at] === '*' && text[at + 1] === '/') {
      depth -= 1
      at += 1
      if (depth === 0 || !nested) return at + 1
    } else if (text[at] === '/' && text[at + 1] === '*') {
      depth += 1
      at += 1
    }
  }
  return text.length
}

function endOfQuoted(text: string, from: number): number {
  const quote = text[from]
  for (let at = from + 1; at < text.length; at++) {
    if (text[at] === '\\') at += 1
    else if (text[at] === quote) return at + 1
  }
  return text.length
}

/** `"..."`, and `r"..."` or `r#"..."#` with the quote at `at`. */
function rustText(text: string, at: number): [number, number] {
  const raw = /(?:^|[^A-Za-z0-9_])b?r(#*)$/.exec(text.slice(Math.max(0, at - 260), at))
  if (raw === null) return [at, endOfQuoted(text, at)]
  const close = `"${raw[1]}`
  const end = text.indexOf(close, at + 1)
  return [at, end === -1 ? text.length : end + close.length]
}
