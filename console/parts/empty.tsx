/** The empty state: why there is nothing, and what to do. Owner: page console/console. */

import type { ComponentChildren } from 'preact'

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <section class="empty">
      <h2>{title}</h2>
      {children}
    </section>
  )
}
