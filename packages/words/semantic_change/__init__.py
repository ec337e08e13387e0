"""Words whose meaning changed, and texts that know their date: corpora, usages, measures of change, senses, pages."""
