/** A text with highlighting that can be edited, and the difference of two. Its program comes when the first one is shown. Owner: page console/function. */

import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import type { Editor as Made } from '../editor/editor.ts'
import type { LineMessage } from '../editor/line-messages.ts'

interface EditorProps {
  label: string
  /** Its ending chooses the highlighting. */
  fileName: string
  text: string
  isReadOnly: boolean
  onChange: (text: string) => void
  /** Ctrl+S. */
  onSave: () => void
  /** Errors by line. */
  messages: readonly LineMessage[]
  /** A line to bring into sight. */
  line: number | null
}

const NO_PROGRAM = 'The editor could not be loaded: this page and the gateway are different builds. Reload the page.'

/** Mounts the editor in a shadow tree. */
function useMounted<T extends { destroy: () => void }>(
  make: (program: typeof import('../editor/editor.ts'), root: ShadowRoot, parent: HTMLElement) => T,
  depends: readonly unknown[],
) {
  const host = useRef<HTMLDivElement>(null)
  const [made, setMade] = useState<T | null>(null)
  const [error, setError] = useState<string | null>(null)
  useEffect(() => {
    let isOver = false
    let current: T | null = null
    const element = host.current as HTMLDivElement
    const root = element.shadowRoot ?? element.attachShadow({ mode: 'open' })
    const parent = document.createElement('div')
    parent.style.height = '100%'
    root.append(parent)
    import('../editor/editor.ts').then(
      program => {
        if (isOver) return
        current = make(program, root, parent)
        setMade(current)
      },
      () => setError(NO_PROGRAM),
    )
    return () => {
      isOver = true
      current?.destroy()
      parent.remove()
    }
  }, depends)
  return { host, made, error }
}

export function Editor({ label, fileName, text, isReadOnly, onChange, onSave, messages, line }: EditorProps) {
  const latest = useRef({ onChange, onSave })
  latest.current = { onChange, onSave }
  const { host, made, error } = useMounted<Made>(
    (program, root, parent) =>
      program.createEditor({
        root,
        parent,
        label,
        fileName,
        text,
        isReadOnly,
        onChange: next => latest.current.onChange(next),
        onSave: () => latest.current.onSave(),
      }),
    [label, fileName, isReadOnly],
  )
  // Before the browser handles another key: after a key, `text` is older than the document and would replace it.
  useLayoutEffect(() => made?.setText(text), [made, text])
  const marks = JSON.stringify([messages, line])
  useEffect(() => made?.mark(messages, line), [made, marks])
  return (
    <>
      {error !== null && <p class="error">{error}</p>}
      <div class="editor" ref={host} />
    </>
  )
}

interface DifferenceProps {
  label: string
  fileName: string
  before: string
  after: string
}

export function Difference({ label, fileName, before, after }: DifferenceProps) {
  const { host, error } = useMounted(
    (program, root, parent) => program.createDifference({ root, parent, label, fileName, before, text: after }),
    [label, fileName, before, after],
  )
  return (
    <>
      {error !== null && <p class="error">{error}</p>}
      <div class="editor difference" ref={host} />
    </>
  )
}
