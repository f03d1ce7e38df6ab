#!/usr/bin/env bash
# Takes the README's pictures of pages: pages.sh http://127.0.0.1:7434 plans/ID, of a planner that has something to show.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
shot() { # NAME PATH HEIGHT
    chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size="1120,$3" \
        --screenshot="page-$1.png" "$pages$2" 2>/dev/null
}
pages=$1
shot overview / 860
shot plan "/$2" 1120
shot errors /errors 830
