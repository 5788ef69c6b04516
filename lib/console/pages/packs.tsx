/** Packs and installs. Owner: page console/console. */

import { Page } from '../parts/page.tsx'

export function PacksPage() {
  return (
    <Page title="Packs and installs" question="Which packages are there?">
      {null}
    </Page>
  )
}
