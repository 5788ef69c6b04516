/** The lines of a source around an error. Page: runtimes/node. */

/** Characters of a source line that are shown. */
const MAX_FRAME_CHARS = 160

/**
 * The line of an error and the one before it, numbered, with a mark below the column.
 * @param {string} source
 * @param {number} line - from 1
 * @param {number} [column] - from 1
 */
export function toSourceFrame(source, line, column) {
  const first = Math.max(1, line - 1)
  const lines = source
    .split('\n')
    .slice(first - 1, line)
    .map((text, at) => `${String(first + at).padStart(5)} | ${text.slice(0, MAX_FRAME_CHARS).replaceAll('\t', ' ')}`)
  const hasMark = column !== undefined && column <= MAX_FRAME_CHARS
  return [...lines, ...(hasMark ? [`      | ${' '.repeat(column - 1)}^`] : [])].join('\n')
}
