/** Settings. Owner: page console/console. */

import { Page } from '../parts/page.tsx'

export function SettingsPage() {
  return (
    <Page title="Settings" question="How is it set up?">
      {null}
    </Page>
  )
}
