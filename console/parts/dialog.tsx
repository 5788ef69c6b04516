/** A dialog of the browser's own kind: it keeps the focus, ends with Esc, and gives the focus back. Owner: page console/console. */

import type { ComponentChildren } from 'preact'
import { useLayoutEffect, useRef } from 'preact/hooks'

interface DialogProps {
  title: string
  isOpen: boolean
  onClose: () => void
  class?: string
  children: ComponentChildren
}

export function Dialog({ title, isOpen, onClose, class: name = '', children }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null)
  // Before the next event: a key typed right after must find the focus in the dialog.
  useLayoutEffect(() => {
    if (isOpen) dialog.current?.showModal()
    else dialog.current?.close()
  }, [isOpen])
  return (
    // Keys close it by Esc.
    // biome-ignore lint/a11y/useKeyWithClickEvents: see above
    <dialog
      ref={dialog}
      class={name}
      aria-label={title}
      onClose={onClose}
      onClick={event => {
        if (event.target === dialog.current) onClose()
      }}
    >
      {isOpen && children}
    </dialog>
  )
}

interface ConfirmProps {
  title: string
  /** The data that will be lost. */
  children: ComponentChildren
  /** Text of the button that does it. */
  action: string
  isOpen: boolean
  onConfirm: () => void
  onClose: () => void
}

/** Asks once before something is lost. */
export function Confirm({ title, children, action, isOpen, onConfirm, onClose }: ConfirmProps) {
  return (
    <Dialog title={title} isOpen={isOpen} onClose={onClose} class="confirm">
      <h2>{title}</h2>
      {children}
      <div class="actions">
        <button type="button" onClick={onClose}>
          Keep
        </button>
        <button
          type="button"
          class="danger"
          onClick={() => {
            onClose()
            onConfirm()
          }}
        >
          {action}
        </button>
      </div>
    </Dialog>
  )
}
