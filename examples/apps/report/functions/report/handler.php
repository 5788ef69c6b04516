<?php
// @summary Write the sales of a week as a PDF
require_once __DIR__ . '/_pdf.php';
require_once __DIR__ . '/_sales.php';

function euros(int $cents): string
{
    return number_format($cents / 100, 2) . ' EUR';
}

/** @param array<string, int> $sales */
function draw(string $week, array $sales): string
{
    $pdf = new Pdf();
    $pdf->text(60, 80, 22, "Sales of week $week", true);
    if ($sales === []) {
        $pdf->text(60, 120, 12, 'No sales in this week.');
    }
    $y = 130;
    foreach ($sales as $product => $cents) {
        $pdf->text(60, $y, 11, $product);
        $pdf->bar(220, $y - 9, 240 * $cents / max($sales), 11);
        $pdf->text(475, $y, 11, euros($cents));
        $y += 24;
    }
    $pdf->text(60, $y + 12, 12, 'Total', true);
    $pdf->text(475, $y + 12, 12, euros(array_sum($sales)), true);
    return $pdf->bytes();
}

function handler(array $event): array
{
    // The schedule has no body and means the week that has just ended.
    $week = json_decode($event['body'] ?? '{}', true)['week'] ?? date('o-\WW', intdiv($event['ts'], 1000) - 7 * 86400);
    $sales = read_sales($week);
    $folder = __DIR__ . '/../../data/reports';
    if (!is_dir($folder)) {
        // Another process may be faster: then there is nothing to create.
        @mkdir($folder, 0700, true);
    }
    // Written beside its place and renamed: a reader sees the old report or the new one, and a second run replaces it.
    $temporary = tempnam($folder, '.new-');
    file_put_contents($temporary, draw($week, $sales));
    rename($temporary, "$folder/$week.pdf");
    echo "wrote $week.pdf\n";
    return ['status' => 201, 'body' => ['report' => $week, 'products' => count($sales), 'cents' => array_sum($sales)]];
}
