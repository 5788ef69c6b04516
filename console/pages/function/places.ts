/** Files and lines that a message names. Owner: page console/function. */

interface Place {
  /** Below the functions root, or as the message has it. */
  readonly file: string
  readonly line: number
}

/** A message in pieces: plain text, and places. */
export type Piece = string | (Place & { readonly text: string })

const END = /\.(?:[cm]?[jt]s|py|php|lua|go|rs|json):(\d{1,9})/g
const NAME_CHAR = /[\w@.\-/[\]]/
/** Characters of a file's name that are looked for. */
const MAX_NAME = 1024

export function toPieces(message: string): Piece[] {
  const pieces: Piece[] = []
  let from = 0
  for (const match of message.matchAll(END)) {
    const end = match.index + match[0].length
    // Backwards from its ending: a pattern for the whole would try each character of a long text as its start.
    let start = match.index
    const first = Math.max(from, start - MAX_NAME)
    while (start > first && NAME_CHAR.test(message.charAt(start - 1))) start -= 1
    if (start === match.index) continue
    if (start > from) pieces.push(message.slice(from, start))
    const text = message.slice(start, end)
    pieces.push({ text, file: text.slice(0, text.lastIndexOf(':')), line: Number(match[1]) })
    from = end
  }
  if (from < message.length) pieces.push(message.slice(from))
  return pieces
}

/** True when a message means this file: by its path below the root, or by one that ends so. */
export function isFile(place: Place, file: string): boolean {
  return place.file === file || place.file.endsWith(`/${file}`)
}

/** Messages about lines of one file, without repetitions. */
export function toLineMessages(messages: readonly string[], file: string): { line: number; message: string }[] {
  const found = messages.flatMap(message => {
    const place = toPieces(message).find((piece): piece is Exclude<Piece, string> => {
      return typeof piece !== 'string' && isFile(piece, file)
    })
    return place === undefined ? [] : [{ line: place.line, message }]
  })
  return found.filter((one, index) => found.findIndex(other => other.message === one.message) === index)
}
