"""From files to records: find the inputs, recognise them by content, parse them in children, assemble the incident."""
