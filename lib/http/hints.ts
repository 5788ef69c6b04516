/** Hints in a handler's comments: `@summary @query @body @content_type` in its first lines. Owner: §4.1, page http/openapi. */

/** Lines of a handler searched for `@summary` and the other hints. */
const HINT_LINES = 80

export interface HandlerHints {
  summary: string | null
  query: Readonly<Record<string, unknown>> | null
  body: unknown
  contentType: string | null
}

const HINT = /^\s*(?:#|\/\/|--|\*|\/\*+)\s*@(summary|query|body|content_type)\s+(.+?)\s*(?:\*\/)?$/

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

/** Reads the hints of a handler's text; what is no hint is passed over, the first of a kind counts. */
export function parseHints(fileText: string): HandlerHints {
  const hints: HandlerHints = { summary: null, query: null, body: undefined, contentType: null }
  for (const line of fileText.split('\n', HINT_LINES)) {
    const match = HINT.exec(line)
    if (match === null) continue
    const [, kind, text] = match as unknown as [string, string, string]
    if (kind === 'summary') hints.summary ??= text
    else if (kind === 'content_type') hints.contentType ??= text
    else if (kind === 'body') hints.body ??= parseJson(text)
    else {
      const query = parseJson(text)
      if (typeof query === 'object' && query !== null && !Array.isArray(query)) hints.query ??= { ...query }
    }
  }
  return hints
}
