/** How the editor looks: colours of the theme, by names that it hands into the editor's own tree. Owner: page console/function. */

import { HighlightStyle, syntaxHighlighting } from '@codemirror/language'
import type { Extension } from '@codemirror/state'
import { EditorView } from '@codemirror/view'
import { tags } from '@lezer/highlight'

const STYLE = HighlightStyle.define([
  { tag: [tags.keyword, tags.modifier, tags.operatorKeyword], color: 'var(--code-word)' },
  { tag: [tags.string, tags.special(tags.string), tags.regexp, tags.escape], color: 'var(--code-text)' },
  { tag: [tags.number, tags.bool, tags.null, tags.atom], color: 'var(--code-number)' },
  { tag: [tags.comment, tags.meta], color: 'var(--quiet)', fontStyle: 'italic' },
  { tag: [tags.function(tags.variableName), tags.function(tags.propertyName)], color: 'var(--code-name)' },
  { tag: [tags.typeName, tags.className, tags.namespace, tags.propertyName], color: 'var(--code-name)' },
  { tag: tags.invalid, color: 'var(--failing)' },
])

const LOOK = EditorView.theme({
  '&': { height: '100%', backgroundColor: 'var(--paper)', color: 'var(--text)', fontSize: '13px' },
  '&.cm-focused': { outline: '2px solid var(--accent)', outlineOffset: '-1px' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '20px', overflow: 'auto' },
  '.cm-content': { caretColor: 'var(--text)' },
  '.cm-cursor': { borderLeftColor: 'var(--text)' },
  '.cm-gutters': { backgroundColor: 'var(--raised)', color: 'var(--quiet)', borderRight: '1px solid var(--line)' },
  '.cm-activeLine': { backgroundColor: 'transparent' },
  '.cm-activeLineGutter': { backgroundColor: 'var(--accent-paper)', color: 'var(--text)' },
  '&.cm-focused .cm-selectionBackground, .cm-selectionBackground, .cm-content ::selection': {
    background: 'var(--code-chosen) !important',
  },
  '.cm-message': { backgroundColor: 'var(--failing-paper)' },
  '.cm-message-text': { color: 'var(--failing)', fontFamily: 'var(--font)', padding: '0 6px', whiteSpace: 'pre-wrap' },
  '.cm-shown': { backgroundColor: 'var(--accent-paper)' },
  '.cm-panels': { backgroundColor: 'var(--raised)', color: 'var(--text)', borderColor: 'var(--line)' },
  '.cm-textfield, .cm-button': {
    border: '1px solid var(--line)',
    background: 'var(--paper)',
    color: 'var(--text)',
    fontSize: '13px',
  },
  '.cm-matchingBracket, &.cm-focused .cm-matchingBracket': {
    backgroundColor: 'transparent',
    outline: '1px solid var(--quiet)',
  },
  '.cm-lintRange-warning': { backgroundImage: 'none', borderBottom: '2px dotted var(--degraded)' },
  '.cm-tooltip': { backgroundColor: 'var(--raised)', border: '1px solid var(--line)', color: 'var(--text)' },
  '.cm-searchMatch': { backgroundColor: 'var(--degraded-paper)' },
  '&.cm-merge-b .cm-changedLine, .cm-inlineChangedLine': { backgroundColor: 'var(--code-new)' },
  '&.cm-merge-b .cm-changedText, .cm-changedText': { background: 'var(--code-new-text)' },
  '.cm-deletedChunk': { backgroundColor: 'var(--code-gone)' },
  '.cm-deletedChunk .cm-deletedText, .cm-deletedText': { background: 'var(--code-gone-text)' },
  '.cm-changeGutter': { width: '3px', paddingLeft: '1px' },
  '.cm-changedLineGutter': { background: 'var(--good)' },
  '.cm-deletedLineGutter': { background: 'var(--failing)' },
  '.cm-collapsedLines': { background: 'var(--raised)', color: 'var(--quiet)', padding: '4px 8px' },
})

export function look(): Extension {
  return [LOOK, syntaxHighlighting(STYLE)]
}
