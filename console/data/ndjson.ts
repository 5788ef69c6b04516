/** An answer of one JSON value a line, as it comes. Owner: page console/console. */

/** Values of lines; lines that are not JSON are dropped. Ends with the response. */
export async function* readJsonLines(answer: Response): AsyncGenerator<unknown, void> {
  if (answer.body === null) return
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader()
  let rest = ''
  try {
    for (;;) {
      const { done, value } = await reader.read()
      const lines = (rest + (value ?? '')).split('\n')
      rest = done ? '' : lines.pop()!
      for (const line of lines) {
        const parsed = toValue(line)
        if (parsed !== undefined) yield parsed
      }
      if (done) return
    }
  } finally {
    void reader.cancel().catch(() => {})
  }
}

function toValue(line: string): unknown {
  try {
    return JSON.parse(line)
  } catch {
    return undefined
  }
}
