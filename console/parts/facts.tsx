/** Names and what they are, below each other. Owner: page console/console. */

import type { ComponentChildren } from 'preact'

export type Fact = readonly [name: string, value: ComponentChildren]

/** @param class - of the list: how it is laid out */
export function Facts({ facts, class: name = 'facts' }: { facts: readonly Fact[]; class?: string }) {
  return (
    <dl class={name}>
      {facts.map(([term, value]) => (
        <div key={term}>
          <dt>{term}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  )
}
