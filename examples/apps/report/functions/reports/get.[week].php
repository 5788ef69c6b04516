<?php
// @summary Download a report
require_once __DIR__ . '/_reports.php';

function handler(array $event, array $params): array
{
    if (!is_authorized($event)) {
        return UNAUTHORIZED;
    }
    // The schema allows weeks only, so the name cannot leave the folder.
    $week = $params['week'];
    $path = FOLDER . "/$week.pdf";
    if (!is_file($path)) {
        return ['status' => 404, 'body' => ['error' => "no report of $week"]];
    }
    return [
        'headers' => ['Content-Type' => 'application/pdf', 'Content-Disposition' => "inline; filename=\"$week.pdf\""],
        'is_base64' => true,
        'body_base64' => base64_encode(file_get_contents($path)),
    ];
}
