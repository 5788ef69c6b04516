/** Code blocks of a page in Markdown, each with the comment before it that says what it needs. Owner: page docs. */

export interface DocBlock {
  /** Line of the page where its first line of code stands, from 1. */
  line: number
  /** As written behind the fence; empty for none. */
  language: string
  /** `file: hello.py`, `not run: needs root`; null without a comment. */
  marker: string | null
  text: string
  /** One of several that show the same in other languages: between `<!-- tabs -->` and `<!-- end of tabs -->`. */
  isTab: boolean
}

const MARKER = /^<!-- (file|serves|not run|environment): (.+) -->$/

/** @throws Error when a block does not end */
export function readDocBlocks(page: string): DocBlock[] {
  const lines = page.split('\n')
  const blocks: DocBlock[] = []
  let isTab = false
  for (let i = 0; i < lines.length; i++) {
    if (lines[i] === '<!-- tabs -->') isTab = true
    if (lines[i] === '<!-- end of tabs -->') isTab = false
    const fence = /^```(\S*)/.exec(lines[i]!)
    if (fence === null) continue
    const end = lines.indexOf('```', i + 1)
    if (end === -1) throw new Error(`the block at line ${i + 1} does not end`)
    const before = lines[i - 1] ?? ''
    const marker = MARKER.test(before) ? before.slice('<!-- '.length, -' -->'.length) : null
    blocks.push({ line: i + 2, language: fence[1]!, marker, text: lines.slice(i + 1, end).join('\n'), isTab })
    i = end
  }
  return blocks
}

export interface ShownCommand {
  command: string
  /** What the page shows below it; `...` stands for any text. */
  output: string
}

/** Commands of a `console` block: lines that begin with `$ `, continued by `> `; what follows is what they print. */
export function readSession(text: string): ShownCommand[] {
  const commands: ShownCommand[] = []
  for (const line of text.split('\n')) {
    const last = commands.at(-1)
    if (line.startsWith('$ ')) commands.push({ command: line.slice(2), output: '' })
    else if (last === undefined) throw new Error(`a session begins with "$ ", not with ${line}`)
    else if (line.startsWith('> ') && last.output === '') last.command += `\n${line.slice(2)}`
    else last.output += `${line}\n`
  }
  return commands
}

/** Whether a text is the one that a page shows. */
export function isAsShown(output: string, shown: string): boolean {
  const parts = shown
    .trim()
    .split('...')
    .map(part => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))
  return new RegExp(`^${parts.join('[\\s\\S]*?')}$`).test(output.trim())
}
