/** Functions. Owner: page console/console. */

import { Page } from '../parts/page.tsx'

export function FunctionsPage() {
  return (
    <Page title="Functions" question="What is here, what is slow or failing?">
      {null}
    </Page>
  )
}
