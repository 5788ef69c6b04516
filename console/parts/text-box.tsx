/** Text as it is, in a box that scrolls and can be reached by keys. Owner: page console/console. */

interface TextBoxProps {
  /** Said to who cannot see it. */
  label: string
  text: string
}

export function TextBox({ label, text }: TextBoxProps) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls has to be reached by keys
    <section class="text-box" aria-label={label} tabIndex={0}>
      <pre>{text}</pre>
    </section>
  )
}
