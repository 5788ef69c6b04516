/** Function. Owner: page console/console. */

import { Page } from '../parts/page.tsx'

export function FunctionPage({ rest }: { rest: string }) {
  return (
    <Page title={rest} question="">
      {null}
    </Page>
  )
}
