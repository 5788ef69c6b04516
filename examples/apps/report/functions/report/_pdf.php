<?php
/** One page of text and bars as PDF 1.4: A4, Helvetica, sizes in points, from the upper left corner. */
final class Pdf
{
    private const HEIGHT = 842;
    private string $content = '';

    public function text(float $x, float $y, float $size, string $text, bool $bold = false): void
    {
        // The built-in fonts have the characters of Windows-1252. Others become "?".
        $bytes = iconv('UTF-8', 'CP1252//TRANSLIT//IGNORE', $text);
        $escaped = addcslashes((string) preg_replace('/[\x00-\x1f]/', ' ', (string) $bytes), '\\()');
        $this->add('BT /%s %.1F Tf %.1F %.1F Td (%s) Tj ET', $bold ? 'F2' : 'F1', $size, $x, self::HEIGHT - $y, $escaped);
    }

    public function bar(float $x, float $y, float $width, float $height): void
    {
        $this->add('0.16 0.38 0.63 rg %.1F %.1F %.1F %.1F re f 0 g', $x, self::HEIGHT - $y - $height, $width, $height);
    }

    public function bytes(): string
    {
        $font = '<< /Type /Font /Subtype /Type1 /Encoding /WinAnsiEncoding /BaseFont /%s >>';
        $objects = [
            '<< /Type /Catalog /Pages 2 0 R >>',
            '<< /Type /Pages /Kids [3 0 R] /Count 1 >>',
            '<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Resources << /Font << /F1 5 0 R /F2 6 0 R >> >> >>',
            sprintf("<< /Length %d >>\nstream\n%sendstream", strlen($this->content), $this->content),
            sprintf($font, 'Helvetica'),
            sprintf($font, 'Helvetica-Bold'),
        ];
        $file = "%PDF-1.4\n";
        // The table at the end holds where each object begins; readers require entries of exactly 20 bytes.
        $table = "0000000000 65535 f \n";
        foreach ($objects as $i => $object) {
            $table .= sprintf("%010d 00000 n \n", strlen($file));
            $file .= sprintf("%d 0 obj\n%s\nendobj\n", $i + 1, $object);
        }
        $count = count($objects) + 1;
        $trailer = "trailer\n<< /Size $count /Root 1 0 R >>\nstartxref\n" . strlen($file) . "\n%%EOF\n";
        return "{$file}xref\n0 $count\n$table$trailer";
    }

    private function add(string $format, float|string ...$values): void
    {
        $this->content .= sprintf($format, ...$values) . "\n";
    }
}
