/** Try it. Owner: page console/console. */

import { Page } from '../parts/page.tsx'

export function TryPage() {
  return (
    <Page title="Try it" question="What does it answer?">
      {null}
    </Page>
  )
}
