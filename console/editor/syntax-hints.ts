/** Places that the highlighting cannot read, underlined while one types: a hint, the gateway says for sure. Owner: page console/function. */

import { syntaxTree } from '@codemirror/language'
import { type Diagnostic, linter, lintKeymap } from '@codemirror/lint'
import type { EditorState, Extension } from '@codemirror/state'
import { keymap } from '@codemirror/view'

/** Milliseconds without a key. */
const PAUSE_MS = 600
/** After the first mistakes all that follows is guessed. */
const MOST_HINTS = 3

function findHints(state: EditorState): Diagnostic[] {
  const hints: Diagnostic[] = []
  syntaxTree(state).iterate({
    enter: ({ type, from, to }) => {
      if (!type.isError || hints.length >= MOST_HINTS) return
      const line = state.doc.lineAt(from)
      // Where something is missing there is nothing to underline but what stands before.
      const start = from === to ? Math.max(line.from, from - 1) : from
      hints.push({ from: start, to: Math.max(to, start), severity: 'warning', message: toMessage(from, to, state) })
    },
  })
  return hints
}

function toMessage(from: number, to: number, state: EditorState): string {
  const text =
    state
      .sliceDoc(from, Math.min(to, from + 30))
      .split('\n', 1)[0]
      ?.trim() ?? ''
  return text === '' ? 'Something is missing here.' : `"${text}" is unexpected here.`
}

export function syntaxHints(): Extension {
  return [linter(view => findHints(view.state), { delay: PAUSE_MS }), keymap.of(lintKeymap)]
}
