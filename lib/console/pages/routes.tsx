/** Routes. Owner: page console/console. */

import { Page } from '../parts/page.tsx'

export function RoutesPage() {
  return (
    <Page title="Routes" question="Who answers this URL?">
      {null}
    </Page>
  )
}
