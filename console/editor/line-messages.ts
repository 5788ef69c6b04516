/** Lines with what the gateway says of them below, and the line that an address names. Owner: page console/function. */

import { RangeSetBuilder, StateEffect, StateField, type Extension, type Text } from '@codemirror/state'
import { Decoration, type DecorationSet, EditorView, WidgetType } from '@codemirror/view'

/** An error in a line, from 1. */
export interface LineMessage {
  readonly line: number
  readonly message: string
}

interface Marks {
  readonly messages: readonly LineMessage[]
  /** Line that an address names; null for none. */
  readonly shown: number | null
}

class MessageText extends WidgetType {
  readonly message: string

  constructor(message: string) {
    super()
    this.message = message
  }

  override eq(other: MessageText): boolean {
    return other.message === this.message
  }

  toDOM(): HTMLElement {
    const element = document.createElement('div')
    element.className = 'cm-message-text'
    element.setAttribute('role', 'note')
    element.textContent = this.message
    return element
  }
}

const setMarks = StateEffect.define<Marks>()

const marksField = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(marks, transaction) {
    let next = marks.map(transaction.changes)
    for (const effect of transaction.effects)
      if (effect.is(setMarks)) next = toDecorations(effect.value, transaction.newDoc)
    return next
  },
  provide: field => EditorView.decorations.from(field),
})

function toDecorations({ messages, shown }: Marks, doc: Text): DecorationSet {
  const builder = new RangeSetBuilder<Decoration>()
  // A message may be of a longer text than the one that is shown.
  const clamp = (line: number): number => Math.max(1, Math.min(doc.lines, line))
  const lines = new Map<number, string[]>()
  if (shown !== null) lines.set(clamp(shown), [])
  for (const { line, message } of messages) lines.set(clamp(line), [...(lines.get(clamp(line)) ?? []), message])
  for (const [number, messages] of [...lines].sort(([a], [b]) => a - b)) {
    const { from, to } = doc.line(number)
    builder.add(from, from, Decoration.line({ class: messages.length > 0 ? 'cm-message' : 'cm-shown' }))
    if (messages.length === 0) continue
    builder.add(to, to, Decoration.widget({ widget: new MessageText(messages.join('\n')), block: true, side: 1 }))
  }
  return builder.finish()
}

export function lineMessages(): Extension {
  return marksField
}

/** Marks lines, and brings the shown one into sight. */
export function markLines(view: EditorView, marks: Marks): void {
  const line = marks.shown === null ? null : Math.max(1, Math.min(view.state.doc.lines, marks.shown))
  const at = line === null ? null : view.state.doc.line(line).from
  view.dispatch({
    effects: [setMarks.of(marks), ...(at === null ? [] : [EditorView.scrollIntoView(at, { y: 'center' })])],
    ...(at !== null && { selection: { anchor: at } }),
  })
}
