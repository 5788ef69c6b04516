/** Overview. Owner: page console/console. */

import { Page } from '../parts/page.tsx'

export function OverviewPage() {
  return (
    <Page title="Overview" question="Is it healthy, and what changed?">
      {null}
    </Page>
  )
}
