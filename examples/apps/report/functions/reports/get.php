<?php
// @summary List the reports, the newest first
require_once __DIR__ . '/_reports.php';

function handler(array $event): array
{
    if (!is_authorized($event)) {
        return UNAUTHORIZED;
    }
    $weeks = array_map(fn ($path) => basename($path, '.pdf'), glob(FOLDER . '/*.pdf'));
    return ['status' => 200, 'body' => array_reverse($weeks)];
}
