/** Jobs. Owner: page console/console. */

import { Page } from '../parts/page.tsx'

export function JobsPage() {
  return (
    <Page title="Jobs" question="What runs, and what ran?">
      {null}
    </Page>
  )
}
