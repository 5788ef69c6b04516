/** One page: its title, the question that it answers, and what belongs to the right of them. Owner: page console/console. */

import type { ComponentChildren } from 'preact'

interface PageProps {
  title: string
  /** The question that the page answers; '' for none. */
  question: string
  /** Buttons and fields beside the title. */
  tools?: ComponentChildren
  children: ComponentChildren
}

export function Page({ title, question, tools, children }: PageProps) {
  return (
    <>
      <header class="page-head">
        <div>
          <h1>{title}</h1>
          {question !== '' && <p class="question">{question}</p>}
        </div>
        <div class="tools">{tools}</div>
      </header>
      {children}
    </>
  )
}
