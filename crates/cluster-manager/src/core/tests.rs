mod histories;
mod rules;
