/** Health. Owner: page console/console. */

import { Page } from '../parts/page.tsx'

export function HealthPage() {
  return (
    <Page title="Health" question="What is it made of?">
      {null}
    </Page>
  )
}
