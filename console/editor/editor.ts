/** The editor and the diff view; a separate chunk that is loaded when one is opened. Owner: page console/function. */

import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands'
import { bracketMatching, foldGutter, foldKeymap, indentOnInput } from '@codemirror/language'
import { unifiedMergeView } from '@codemirror/merge'
import { highlightSelectionMatches, search, searchKeymap } from '@codemirror/search'
import { EditorState, type Extension } from '@codemirror/state'
import {
  drawSelection,
  EditorView,
  highlightActiveLineGutter,
  highlightSpecialChars,
  keymap,
  lineNumbers,
} from '@codemirror/view'
import { toLanguage } from './languages.ts'
import { look } from './look.ts'
import { syntaxHints } from './syntax-hints.ts'
import { markLines, lineMessages, type LineMessage } from './line-messages.ts'

interface ShowOptions {
  /** A shadow tree: the page's policy allows style sheets made by script only there. */
  readonly root: ShadowRoot
  readonly parent: HTMLElement
  /** Said to who cannot see it. */
  readonly label: string
  /** Its ending chooses the highlighting. */
  readonly fileName: string
  readonly text: string
}

interface EditorOptions extends ShowOptions {
  readonly isReadOnly: boolean
  readonly onChange: (text: string) => void
  readonly onSave: () => void
}

export interface Editor {
  setText: (text: string) => void
  mark: (messages: readonly LineMessage[], shown: number | null) => void
  destroy: () => void
}

function basics({ label, fileName }: ShowOptions, isReadOnly: boolean): Extension {
  return [
    lineNumbers(),
    highlightSpecialChars(),
    drawSelection(),
    bracketMatching(),
    toLanguage(fileName),
    look(),
    EditorState.readOnly.of(isReadOnly),
    EditorView.contentAttributes.of({
      'aria-label': label,
      tabindex: '0',
      ...(isReadOnly && { 'aria-readonly': 'true' }),
    }),
  ]
}

/**
 * Text typed over several lines: a browser that joins lines itself writes styles into the document, which the page's policy refuses.
 */
const typeOverLines = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const { data, inputType } = event
    if (inputType !== 'insertText' || data === null || view.composing || view.state.selection.main.empty) return false
    if (!view.state.readOnly) view.dispatch(view.state.replaceSelection(data), { userEvent: 'input.type' })
    event.preventDefault()
    return true
  },
})

export function createEditor(options: EditorOptions): Editor {
  const { root, parent, text, isReadOnly, onChange, onSave } = options
  let isQuiet = false
  const save = (): boolean => {
    onSave()
    return true
  }
  const view = new EditorView({
    root,
    parent,
    state: EditorState.create({
      doc: text,
      extensions: [
        basics(options, isReadOnly),
        history(),
        foldGutter(),
        indentOnInput(),
        highlightActiveLineGutter(),
        highlightSelectionMatches(),
        search({ top: true }),
        lineMessages(),
        syntaxHints(),
        typeOverLines,
        keymap.of([
          { key: 'Mod-s', run: save, preventDefault: true },
          // Esc, then Tab leaves the editor.
          indentWithTab,
          ...defaultKeymap,
          ...historyKeymap,
          ...searchKeymap,
          ...foldKeymap,
        ]),
        EditorView.updateListener.of(update => {
          if (update.docChanged && !isQuiet) onChange(update.state.doc.toString())
        }),
      ],
    }),
  })
  return {
    setText(next) {
      if (next === view.state.doc.toString()) return
      isQuiet = true
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: next } })
      isQuiet = false
    },
    mark: (messages, shown) => markLines(view, { messages, shown }),
    destroy: () => view.destroy(),
  }
}

interface DifferenceOptions extends ShowOptions {
  /** What `text` is compared with. */
  readonly before: string
}

/** Both texts in one: what went is above what came. */
export function createDifference(options: DifferenceOptions): Pick<Editor, 'destroy'> {
  const { root, parent, text, before } = options
  return new EditorView({
    root,
    parent,
    state: EditorState.create({
      doc: text,
      extensions: [
        basics(options, true),
        unifiedMergeView({
          original: before,
          mergeControls: false,
          syntaxHighlightDeletions: false,
          collapseUnchanged: { margin: 3, minSize: 6 },
        }),
      ],
    }),
  })
}
